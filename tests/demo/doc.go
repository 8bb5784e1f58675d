// Package demo holds what make demo runs: demo.sh, which shows the main job
// on real files, and its helpers. Its test runs the demo on small files, and
// with a cp that does wrong, which the demo must notice.
package demo

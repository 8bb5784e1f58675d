// Package demo holds the files of `make demo`: demo.sh, which shows the main use of hmcfs on
// real files, and its helpers. Its test runs the demo on small files, and with a faulty cp,
// which the demo must detect.
package demo

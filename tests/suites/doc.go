// Package suites runs third-party test suites on real mounts: fio and stress-ng, by suites.sh,
// which `make suites` calls. Its tests prove that the script detects failures, with stand-ins
// for both programs.
package suites

// Package suites runs test suites of others on real mounts: fio and stress-ng,
// by suites.sh, which `make suites` calls. Its tests prove that the script
// notices what goes wrong, with stand-ins for both programs.
package suites

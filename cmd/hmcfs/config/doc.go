// Package config is the options of hmcfs: one table names each option, its
// type, default and meaning, and from that table come the flags, the
// environment variables, the keys of the config file, `hmcfs config show` and
// docs/config.md.
//
// # Where a value comes from
//
//	default  <  file (system, then user's)  <  environment  <  flag
//
// The strongest source wins whole: a list is replaced, not added to. Every
// value keeps a note of its source. All faults of all sources are reported
// together, each with the place where it was written.
//
// # Adding an option
//
//  1. Add a field to [Options].
//  2. Add a row to [Table], in the order in which people should read them.
//  3. If it can be wrong in a way that its type doesn't catch, add a check to
//     Options.Validate.
//  4. Hand it to its layer in cmd/hmcfs/daemon.
//  5. Run `go test ./cmd/hmcfs/cli -update`, which writes docs/cli.md and
//     docs/config.md anew.
package config

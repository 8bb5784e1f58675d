// Package config defines the options of hmcfs. One [Table] lists each option with
// its type, default and meaning; the flags, the environment variables, the keys
// of the config file, `hmcfs config show` and docs/config.md are derived from it.
//
// # Where a value comes from
//
//	default  <  file (system, then user's)  <  environment  <  flag
//
// The source with the highest precedence replaces all others: a list is replaced,
// not extended. Every value records its source. All faults of all sources are
// reported together, each with the place where it was written.
//
// # Adding an option
//
//  1. Add a field to [Options].
//  2. Add a row to [Table], in the order in which people should read them.
//  3. If a value can be wrong in a way that its type does not catch, add a check
//     to Options.Validate.
//  4. Pass it to its layer in cmd/hmcfs/daemon.
//  5. Run `go test ./cmd/hmcfs/cli -update`, which regenerates docs/cli.md and
//     docs/config.md.
package config

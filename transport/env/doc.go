// Package env reads the user's settings for collectives: the HMCFS_* variables,
// and HCOMM's names for the same settings.
//
//	s, err := env.Parse(os.Getenv)              // reports all faults at once
//	s, err = s.With("group dp", config)         // the settings of one group
//	g, err := collective.New(ctx, f, s.Options(collective.Options{}))
//
// # Where a value comes from
//
//	default  <  environment  <  group  <  the program's own Options
//
// A variable is read under our name first, then under HCOMM's. It is empty or
// valid: a text that does not entirely match the table is refused, in HCOMM's
// wording:
//
//	EI0001: Value 201x for environment variable HCCL_BUFFSIZE is invalid.
//	Expected value: an integer from 1 to 65536.
//
// HCOMM's variables for hardware that is not used here are checked just as
// strictly and then ignored, which Setting.Ignored reports with the reason. Two
// of them, a list of permitted peers and a plugin, are refused, so that nobody
// assumes them to be in effect.
//
// Every rank of a job must have the same environment: collective.New compares the
// resulting settings.
package env

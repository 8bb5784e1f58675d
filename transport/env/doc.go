// Package env reads what a person sets for collectives: the HMCFS_* variables,
// and the names that HCOMM has for the same.
//
//	s, err := env.Parse(os.Getenv)              // all faults at once
//	s, err = s.With("group dp", config)         // what is set for one group
//	g, err := collective.New(ctx, f, s.Options(collective.Options{}))
//
// # Where a value comes from
//
//	default  <  environment  <  group  <  the program's own Options
//
// A variable is read under our name first, then under HCOMM's. It is empty or it
// is right: a text that is not wholly what the table says is refused, with the
// words that HCOMM has for it:
//
//	EI0001: Value 201x for environment variable HCCL_BUFFSIZE is invalid.
//	Expected value: an integer from 1 to 65536.
//
// What HCOMM's variables say about hardware that is not used here is checked
// just as strictly and then ignored, which Setting.Ignored tells with the
// reason. Two ask for something that nobody should believe to have without
// having it, a list of permitted peers and a plugin: they are refused.
//
// Every rank of a job has to have the same environment: collective.New compares
// what came of it.
package env

// Package perf measures the communicator between two processes: latency of
// tags, puts, gets and messages, and bandwidth by size, for each way to the
// peer and each kind of memory. Every byte of each bandwidth row is verified.
//
// One process serves and does what it is asked for in messages; the other
// runs and measures:
//
//	runner                                server
//	{open, memory, size}             ──>  registers memory
//	                                 <──  descriptor
//	{fill, seed, size}               ──>  writes the content of the seed
//	put … put
//	{verify, seed, size}             ──>  looks at every byte
//	                                 <──  the first that differs, or none
//	{echo, count}; tag … tag         <──> sends each tag back
//	{join}                           <──> a domain of the two
//	{receive, size, count}           <──  receives what is sent
//	{bounce, size}                   ──>  registers host memory
//	                                 <──  descriptor
//	{store, count}; put, tag …       <──> moves it on, sends each tag back
//	{end}                            ──>  the next session, or the next runner
//
// A session is one address and one transport. The runner makes a communicator
// for each, the server has one for all of them, and tells when a runner goes
// before its end.
//
// All units are decimal: 1 GB is 1e9 bytes.
package perf

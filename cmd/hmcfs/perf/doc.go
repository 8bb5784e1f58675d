// Package perf measures the communicator between two processes: the latency of tags, puts,
// gets and messages, and bandwidth by size, for each route to the peer and each kind of
// memory. Every byte of each bandwidth row is verified. It also measures the collectives
// of a group of ranks (Judge).
//
// One process serves requests that arrive as messages; the other runs the measurements:
//
//	runner                                server
//	{open, memory, size}             ──>  registers memory
//	                                 <──  descriptor
//	{fill, seed, size}               ──>  writes the content of the seed
//	put … put
//	{verify, seed, size}             ──>  verifies every byte
//	                                 <──  the first that differs, or none
//	{echo, count}; tag … tag         <──> sends each tag back
//	{join}                           <──> a domain of the two
//	{receive, size, count}           <──  receives the messages
//	{bounce, size}                   ──>  registers host memory
//	                                 <──  descriptor
//	{store, count}; put, tag …       <──> stores the bytes, sends each tag back
//	{end}                            ──>  the next session, or the next runner
//
// A session is one address with one transport. The runner makes a communicator for each,
// the server has one for all of them, and reports a runner that disconnects before its
// end.
//
// All units are decimal: 1 GB is 1e9 bytes.
package perf

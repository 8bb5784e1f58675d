// Package ucx puts to and gets from the memory of a peer by UCX.
package ucx

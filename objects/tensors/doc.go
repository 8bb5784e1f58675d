// Package tensors reads the headers of files that hold tensors, .npy and .safetensors, and
// generates the .npy header of any tensor in them. It moves no content: a tensor is described
// as a range of the file.
//
// Its input is untrusted. Lengths are bounded before memory is allocated, a header is read as
// a stream and never held as a whole, and every fault is an ErrFormat that names the tensor
// and the cause. An error of the reader is passed through.
//
// # The tree
//
// The tensors of a file are shown as a tree of .npy files. A '/' in a tensor's name makes
// directories:
//
//	"wte"            wte.npy
//	"h/0/attn.bias"  h/0/attn.bias.npy
//
// A .npy file holds one tensor, which has the name of the file itself.
//
// All functions may be called from any goroutine; a File is immutable.
package tensors

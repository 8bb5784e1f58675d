package metadata

import "testing"

// TestSipHash compares with the reference implementation's vectors: the key
// is 00 01 … 0f, the input 00 01 … n-1.
func TestSipHash(t *testing.T) {
	var key hashKey
	for i := range key {
		key[i] = byte(i)
	}
	vectors := map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 2: 0x0d6c8009d9a94f5a,
		7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5,
		63: 0x958a324ceb064572,
	}
	for n, want := range vectors {
		in := make([]byte, n)
		for i := range in {
			in[i] = byte(i)
		}
		if got := key.sum(string(in)); got != want {
			t.Errorf("sum of %d bytes = %#x, want %#x", n, got, want)
		}
	}
}

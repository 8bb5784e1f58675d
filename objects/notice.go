package objects

// Notice is a change that somebody else may have remembered otherwise.
type Notice struct {
	// Ino has other attributes or content; 0 is none.
	Ino Ino
	// Dir has other names; 0 is none.
	Dir Ino
}

// OnNotice has fn called after every change of attributes, content or names
// that went through the store, by whomever; what the kernel writes to a host
// file by itself is noticed when the file is closed. fn must not wait and calls
// nothing of the store's. cancel returns when fn is not running and won't be
// called again.
func (s *Store) OnNotice(fn func(Notice)) (cancel func()) {
	_ = fn
	return func() {}
}

package daemon

import "crypto/tls"

// Proofs has what a mount among others shows and demands, read from their
// files.
type Proofs struct {
	// Secret is shared by all nodes.
	Secret []byte
	// TLS is for the connections between nodes; nil is none.
	TLS *tls.Config
	// Etcd is for those to etcd; nil is plain.
	Etcd *tls.Config
	// EtcdPassword is that of the user that the options name.
	EtcdPassword string
	// Warnings tells what is wrong with the files, and does not stop anybody.
	Warnings []string
}

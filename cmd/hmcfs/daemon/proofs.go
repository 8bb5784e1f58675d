package daemon

import "crypto/tls"

// Proofs holds the credentials of a mount in a cluster, read from their files.
type Proofs struct {
	// Secret is shared by all nodes.
	Secret []byte
	// TLS configures the connections between nodes; nil means no TLS.
	TLS *tls.Config
	// Etcd configures the connections to etcd; nil means plain TCP.
	Etcd *tls.Config
	// EtcdPassword is the password of the user named in the options.
	EtcdPassword string
	// Warnings describe problems with the files that do not prevent a mount.
	Warnings []string
}

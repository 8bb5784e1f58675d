// Package seal encrypts and authenticates what goes over a connection of two
// sides that share a secret.
//
// # The handshake
//
// Noise_NNpsk0_25519_AESGCM_SHA256, of the Noise Protocol Framework: one message
// of each side, in which each can say something to the other. Who does not know
// the secret can't make the first message, so that a listener answers nobody
// else; and it can't read any of both. Keys are of two ephemeral pairs, so that
// a secret which is lost later opens nothing that was recorded before.
//
// The first message may be a repeated one. What a listener is told in it counts
// only when a record of the peer has come, which only its maker can make.
//
// # Records
//
//	0       1               4                        4+n            20+n
//	┌───────┬───────────────┬────────────────────────┬───────────────┐
//	│ kind  │ n             │ n bytes, AES-256-GCM … │ tag           │
//	└───────┴───────────────┴────────────────────────┴───────────────┘
//
// The nonce counts the records of a direction, so that one which is missing,
// repeated, moved or changed fails, and with it all that comes behind. After
// every rekeyEvery records the key is replaced as Noise does. An END record says
// that nothing more comes: a connection that ends without was cut.
//
// Bytes are handed over when their record has been checked, and none before.
//
// # Waiting
//
// A [Conn] is a net.Conn, whose Read and Write may run side by side, and which
// goes on after a deadline of a Read; a deadline that ends a Write ends all
// writing, since half of a record may have gone. Try, TryParts and ReadNow do not
// wait. Of what Try takes the kernel may take a part only: the rest is written by
// a goroutine, and nothing more is taken meanwhile.
//
// # Lock order
//
// Conn.reading and Conn.writing are leaves, and are held while the socket is read
// and written.
package seal

package control

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/internal/seal"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Conn is a connection whose peer has authenticated. Its holder closes it.
type Conn struct {
	net.Conn

	Peer wire.Rank
	// PeerEpoch and Epoch are the epochs that the two sides gave this connection.
	PeerEpoch, Epoch wire.Epoch
	Session          wire.Session
	Role             wire.Role
	// Channel is as in wire.Hello.
	Channel uint8
	// Chunk is the maximum payload of one data frame, in bytes, for both sides.
	Chunk uint32
	// Cover is the protection of the connection.
	Cover wire.Cover
}

// The two proofs cover different texts, so that neither is valid in place of the
// other.
const (
	clientProof = "hmcfs communicator, who connects"
	serverProof = "hmcfs communicator, who listens"
)

// The uses of the secret, each with a key of its own.
const (
	proofUse = "hmcfs 2 proof"
	noiseUse = "hmcfs 2 Noise_NNpsk0_25519_AESGCM_SHA256"
)

// prove returns the MAC of the frames under a key derived from the secret.
func prove(secret []byte, side string, frames ...[]byte) wire.Proof {
	key := seal.NewKey(secret, proofUse)
	mac := hmac.New(sha256.New, key[:])
	// Writing to a hash never fails.
	_, _ = io.WriteString(mac, side)
	for _, f := range frames {
		_, _ = mac.Write(f)
	}
	return wire.Proof(mac.Sum(nil))
}

// ReadFrame reads one frame, of one of the wanted kinds, and returns its body.
// Another kind is wire.ErrFrame. It reads no further byte.
func ReadFrame(c io.Reader, want ...wire.Kind) (wire.Kind, []byte, error) {
	var head [wire.HeaderSize]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	h, err := wire.ParseHeader(head[:])
	if err != nil {
		return 0, nil, err
	}
	for _, k := range want {
		if h.Kind == k {
			body := make([]byte, h.Length)
			_, err := io.ReadFull(c, body)
			return k, body, err
		}
	}
	return 0, nil, fmt.Errorf("received %s instead of %s: %w", h.Kind, want[0], wire.ErrFrame)
}

// Timely runs an exchange on a connection within a time limit and the context. An
// end of the context makes the connection unusable.
func Timely(ctx context.Context, c net.Conn, limit time.Duration, exchange func() error) error {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err := exchange()
	if !stop() {
		return errors.Join(ctx.Err(), err)
	}
	return errors.Join(err, c.SetDeadline(time.Time{}))
}

// guarded runs one side of a handshake within its time limit and the context.
func (o *Options) guarded(ctx context.Context, raw net.Conn, shake func() (*Conn, error)) (conn *Conn, err error) {
	err = Timely(ctx, raw, o.HandshakeTimeout, func() (err error) {
		conn, err = shake()
		return err
	})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// secured returns the connection itself, or TLS over it if configured: side is
// tls.Client or tls.Server, and listens is the name that the listening side must
// have, which only the connecting side needs.
func (o *Options) secured(ctx context.Context, raw net.Conn, side func(net.Conn, *tls.Config) *tls.Conn, listens string) (net.Conn, error) {
	if o.TLS == nil {
		return raw, nil
	}
	secure := side(raw, o.tlsConfig(listens))
	err := secure.HandshakeContext(ctx)
	switch {
	case err == nil:
		return secure, nil
	case isCut(err) || ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded):
		return nil, brokenOff("TLS", err)
	}
	return nil, fmt.Errorf("TLS: %w: %w", ErrAuth, err)
}

// isCut reports whether a connection has ended during a handshake, which says
// nothing about the peer's identity. It is reset if the peer has left received
// bytes unread.
func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// brokenOff adds ErrSilent if the connection has ended.
func brokenOff(doing string, err error) error {
	if isCut(err) {
		return fmt.Errorf("%s: %w: %w", doing, err, ErrSilent)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// connect performs the connecting side's handshake. want carries To, Role,
// Session and Channel.
func (o *Options) connect(ctx context.Context, raw net.Conn, want wire.Hello) (*Conn, error) {
	name := o.PeerName(want.To)
	if o.TLS != nil && name == "" {
		return nil, fmt.Errorf("the certificate name of %s is unknown: %w", want.To, ErrAuth)
	}
	return o.guarded(ctx, raw, func() (*Conn, error) {
		c, err := o.secured(ctx, raw, tls.Client, name)
		if err != nil {
			return nil, err
		}
		return o.introduce(c, want)
	})
}

// introduce sends our identity and verifies that of the peer.
func (o *Options) introduce(raw net.Conn, want wire.Hello) (*Conn, error) {
	hello := want
	hello.From, hello.Epoch, hello.Chunk, hello.Cover = o.Rank, o.Epochs.Next(), o.Chunk, o.cover(raw)
	// It never fails: the runtime ends the process if the kernel has no random
	// bytes.
	_, _ = rand.Read(hello.Nonce[:])
	helloFrame := hello.Append(nil)
	opening, err := o.opening(raw, true)
	if err != nil {
		return nil, err
	}
	if err = opening.send(wire.KindHello, helloFrame); err != nil {
		return nil, brokenOff("send HELLO", err)
	}
	challenge, err := o.challenged(opening, want.To, hello.Cover)
	if err != nil {
		return nil, err
	}
	c, err := opening.proceed()
	if err != nil {
		return nil, err
	}
	challengeFrame := challenge.Append(nil)
	proof := prove(o.Secret, clientProof, helloFrame, challengeFrame)
	if _, err = c.Write(proof.Append(nil)); err != nil {
		return nil, brokenOff("send PROOF", err)
	}
	welcome, err := o.welcomed(c, want.To, helloFrame, challengeFrame, proof[:])
	if err != nil {
		return nil, err
	}
	return &Conn{
		Conn: covered(c, hello.Cover), Peer: want.To, PeerEpoch: challenge.Epoch, Epoch: hello.Epoch,
		Session: welcome.Session, Role: want.Role, Channel: want.Channel, Chunk: welcome.Chunk, Cover: hello.Cover,
	}, nil
}

// challenged reads the first answer and checks that it comes from the wanted
// rank, and that it requires the same protection.
func (o *Options) challenged(opening *opening, peer wire.Rank, cover wire.Cover) (wire.Challenge, error) {
	body, err := opening.receive(wire.KindChallenge)
	if err != nil {
		return wire.Challenge{}, brokenOff("no answer to HELLO", err)
	}
	challenge, err := wire.ParseChallenge(body)
	if err != nil {
		return challenge, err
	}
	if challenge.From != peer {
		return challenge, &WrongRankError{Want: peer, Got: challenge.From}
	}
	return challenge, checkCover(peer, challenge.Cover, cover)
}

// welcomed reads the last answer and checks that its sender knows the secret.
func (o *Options) welcomed(c net.Conn, peer wire.Rank, frames ...[]byte) (wire.Welcome, error) {
	kind, body, err := ReadFrame(c, wire.KindWelcome, wire.KindRefusal)
	if err != nil {
		return wire.Welcome{}, brokenOff("no answer to PROOF", err)
	}
	if kind == wire.KindRefusal {
		r, perr := wire.ParseRefusal(body)
		if perr != nil {
			return wire.Welcome{}, perr
		}
		return wire.Welcome{}, &RefusalError{Peer: peer, Code: r.Code, Reason: r.Reason}
	}
	w, err := wire.ParseWelcome(body)
	if err != nil {
		return wire.Welcome{}, err
	}
	if mac := proveWelcome(o.Secret, w, frames); !hmac.Equal(mac[:], w.Proof[:]) || w.Chunk > o.Chunk {
		return wire.Welcome{}, fmt.Errorf("wrong proof from %s; check that both sides have the same secret: %w", peer, ErrAuth)
	}
	return w, nil
}

// accept performs the listening side's handshake. heard is called when a HELLO,
// or the first message of TLS, has arrived.
func (o *Options) accept(ctx context.Context, raw net.Conn, h Handler, heard func()) (*Conn, error) {
	return o.guarded(ctx, raw, func() (*Conn, error) {
		if err := awaitByte(raw); err != nil {
			return nil, fmt.Errorf("no bytes received: %w", err)
		}
		c, err := o.secured(ctx, raw, listening(heard), "")
		if err != nil {
			return nil, err
		}
		return o.examine(c, h, heard)
	})
}

// examine requests a proof from the connecting side, and answers.
func (o *Options) examine(raw net.Conn, h Handler, heard func()) (*Conn, error) {
	opening, err := o.opening(raw, false)
	if err != nil {
		return nil, err
	}
	body, err := opening.receive(wire.KindHello)
	if err != nil {
		return nil, fmt.Errorf("read HELLO: %w", err)
	}
	hello, err := wire.ParseHello(body)
	if err != nil {
		return nil, err
	}
	heard() // a partial HELLO, or one made without the secret, counts as silence
	if err = o.checkCertificate(raw, hello.From); err != nil {
		return nil, err
	}
	challenge := wire.Challenge{From: o.Rank, Epoch: o.Epochs.Next(), Cover: o.cover(raw)}
	_, _ = rand.Read(challenge.Nonce[:])
	helloFrame, challengeFrame := hello.Append(nil), challenge.Append(nil)
	if err = opening.send(wire.KindChallenge, challengeFrame); err != nil {
		return nil, fmt.Errorf("send CHALLENGE: %w", err)
	}
	if err = checkCover(hello.From, hello.Cover, challenge.Cover); err != nil {
		return nil, err
	}
	c, err := opening.proceed()
	if err != nil {
		return nil, err
	}
	if _, body, err = ReadFrame(c, wire.KindProof); err != nil {
		return nil, fmt.Errorf("read PROOF: %w", err)
	}
	theirs, err := wire.ParseProof(body)
	if err != nil {
		return nil, err
	}
	proof := prove(o.Secret, clientProof, helloFrame, challengeFrame)
	if !hmac.Equal(theirs[:], proof[:]) || hello.To != o.Rank {
		return nil, fmt.Errorf("wrong proof from %s: %w", hello.From, ErrAuth)
	}
	return o.answer(c, hello, challenge.Epoch, h, helloFrame, challengeFrame, proof[:])
}

// answer asks the handler and sends WELCOME or REFUSAL.
func (o *Options) answer(c net.Conn, hello wire.Hello, epoch wire.Epoch, h Handler, frames ...[]byte) (*Conn, error) {
	session, refusal := h.Admit(hello)
	if refusal != nil {
		if _, err := c.Write(refusal.Append(nil)); err != nil {
			return nil, fmt.Errorf("send REFUSAL: %w", err)
		}
		return nil, fmt.Errorf("refused %s: %s: %w", hello.From, refusal.Reason, ErrRefused)
	}
	w := wire.Welcome{Session: session, Chunk: min(o.Chunk, hello.Chunk)}
	w.Proof = proveWelcome(o.Secret, w, frames)
	if _, err := c.Write(w.Append(nil)); err != nil {
		return nil, fmt.Errorf("send WELCOME: %w", err)
	}
	return &Conn{
		Conn: covered(c, hello.Cover), Peer: hello.From, PeerEpoch: hello.Epoch, Epoch: epoch,
		Session: session, Role: hello.Role, Channel: hello.Channel, Chunk: w.Chunk, Cover: hello.Cover,
	}, nil
}

// proveWelcome returns the MAC of a welcome and of all frames before it.
func proveWelcome(secret []byte, w wire.Welcome, frames [][]byte) wire.Proof {
	w.Proof = wire.Proof{}
	return prove(secret, serverProof, append(frames, w.Append(nil))...)
}

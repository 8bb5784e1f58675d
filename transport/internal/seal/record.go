package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

const (
	// MaxRecord is the maximum payload of a record, in bytes. Longer records cost
	// less, but fit the processor's cache less well.
	MaxRecord = 64 << 10
	// Overhead is the size of a record, in bytes, beyond its payload.
	Overhead = headSize + tagSize

	headSize  = 4
	tagSize   = 16
	nonceSize = 12

	// rekeyEvery is the number of records under one key, below the limit of AES-GCM.
	rekeyEvery = 1 << 20
)

// kind is the type of a record.
type kind uint8

const (
	kindData kind = 1
	// kindEnd is the last record, which has no payload.
	kindEnd kind = 2
)

// ErrForged reports a record that is not the next one that the peer made:
// changed, missing, repeated or moved in transit, or not a record at all.
var ErrForged = errors.New("seal: a record was modified, omitted or repeated in transit")

// head is the header of a record.
type head struct {
	kind kind
	// n is the size of the payload, in bytes.
	n int
}

func (h head) encode(p []byte) {
	binary.LittleEndian.PutUint32(p, uint32(h.kind)|uint32(h.n)<<8)
}

// parseHead reads the first headSize bytes of a record.
func parseHead(p []byte) (head, error) {
	v := binary.LittleEndian.Uint32(p)
	h := head{kind(v), int(v >> 8)}
	if h.kind == kindData && h.n > 0 && h.n <= MaxRecord || h.kind == kindEnd && h.n == 0 {
		return h, nil
	}
	return head{}, fmt.Errorf("record of kind %d with %d bytes: %w", h.kind, h.n, ErrForged)
}

// direction holds the key of one direction and its record count. One goroutine
// uses it at a time.
type direction struct {
	key   [KeySize]byte
	aead  cipher.AEAD
	count uint64
	nonce [nonceSize]byte
}

func newDirection(key [KeySize]byte) (*direction, error) {
	d := &direction{}
	return d, d.use(key)
}

func (d *direction) use(key [KeySize]byte) error {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return fmt.Errorf("set up the key of a connection: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return fmt.Errorf("set up the key of a connection: %w", err)
	}
	d.key, d.aead = key, aead
	return nil
}

// next returns the nonce of the next record.
func (d *direction) next() ([]byte, error) {
	if d.count > 0 && d.count%rekeyEvery == 0 {
		binary.BigEndian.PutUint64(d.nonce[nonceSize-8:], math.MaxUint64)
		fresh := d.aead.Seal(nil, d.nonce[:], make([]byte, KeySize), nil)
		if err := d.use([KeySize]byte(fresh[:KeySize])); err != nil {
			return nil, err
		}
	}
	binary.BigEndian.PutUint64(d.nonce[nonceSize-8:], d.count)
	d.count++
	return d.nonce[:], nil
}

// seal appends a record with payload p to out. p may be the part of out after the
// place of the record's head. out has room.
func (d *direction) seal(out []byte, k kind, p []byte) ([]byte, error) {
	nonce, err := d.next()
	if err != nil {
		return out, err
	}
	from := len(out)
	out = out[:from+headSize]
	head{k, len(p)}.encode(out[from:])
	return d.aead.Seal(out, nonce, p, out[from:from+headSize]), nil
}

// open verifies the next record and returns its payload: in dst, which has room
// for it, or in place if dst is nil.
func (d *direction) open(dst, record []byte) ([]byte, error) {
	nonce, err := d.next()
	if err != nil {
		return nil, err
	}
	body := record[headSize:]
	if dst == nil {
		dst = body
	}
	p, err := d.aead.Open(dst[:0], nonce, body, record[:headSize])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForged, err)
	}
	return p, nil
}

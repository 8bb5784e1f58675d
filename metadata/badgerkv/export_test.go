package badgerkv

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/dgraph-io/badger/v4/y"
)

// Flatten runs all compactions.
func (kv *KV) Flatten() error { return kv.db.Flatten(1) }

// Retarget makes a witness one of another directory.
func Retarget(page []byte, dir string) []byte {
	page = append([]byte(nil), page...)
	binary.LittleEndian.PutUint64(page[64:], nameOf(dir))
	binary.LittleEndian.PutUint32(page[headSize-4:], crc32.Checksum(page[:headSize-4], y.CastagnoliCrcTable))
	return page
}

// Reboot makes a witness one of an earlier start of the machine.
func Reboot(page []byte) []byte {
	page = append([]byte(nil), page...)
	page[48]++
	binary.LittleEndian.PutUint32(page[headSize-4:], crc32.Checksum(page[:headSize-4], y.CastagnoliCrcTable))
	return page
}

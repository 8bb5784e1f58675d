package keyindex

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/metadata/members"
)

// errForeign reports an entry that is not in the listed space.
var errForeign = errors.New("keyindex: entry is not in the listed space")

// nameOf returns a key's name in the service.
func nameOf(s Space, key string) string { return string(s) + "/" + key }

// keyIn returns the key that has a name in the service.
func keyIn(s Space, name string) (key string, ok bool) {
	return strings.CutPrefix(name, string(s)+"/")
}

// keyOwner is the owner of a key.
type keyOwner struct {
	node  members.Name
	epoch members.Epoch
}

func (t keyOwner) encode() []byte {
	return strconv.AppendUint(append([]byte(t.node), ' '), uint64(t.epoch), 10)
}

func decodeKeyOwner(value []byte) (keyOwner, error) {
	name, number, ok := strings.Cut(string(value), " ")
	epoch, err := strconv.ParseUint(number, 10, 64)
	node := members.Name(name)
	if !ok || err != nil || node.Validate() != nil {
		return keyOwner{}, fmt.Errorf("keyindex: %q is not a node and an epoch", shortened(value))
	}
	return keyOwner{node: node, epoch: members.Epoch(epoch)}, nil
}

// shortened returns value, cut to a length that fits a message.
func shortened(value []byte) string { return string(value[:min(len(value), 80)]) }

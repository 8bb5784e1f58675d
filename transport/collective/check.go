package collective

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// optionsSize is the size, in bytes, of the exchanged options.
const optionsSize = 2048

// protocolVersion is the version of the messages between ranks.
const protocolVersion = 1

// compareOptions compares the options of the group between the ranks, as the watchdog's first
// call.
//
// Errors: an InconsistentError, at every rank.
func compareOptions(ctx context.Context, m *messenger, o *Options) error {
	ranks := m.fabric.Size()
	if ranks == 1 {
		return nil
	}
	name := "new group"
	m.watch.begin(1, &name)
	defer m.watch.end()
	mine := make([]byte, optionsSize)
	own := map[string]string{
		"version": strconv.Itoa(protocolVersion), "algorithm": string(o.Algorithm), "strict": strconv.FormatBool(o.Strict),
		"algorithms": fmt.Sprint(o.Algorithms), "check": string(o.Check), "order": fmt.Sprint(o.Order), "topology": o.Topology, "buffer": strconv.FormatUint(uint64(o.Buffer), 10),
		"timeout": o.Timeout.String(), "stuck": o.Stuck.String(), "retry": strconv.Itoa(o.Retry), "keep-source": strconv.FormatBool(o.KeepSource),
		"settle": strconv.FormatUint(uint64(o.Settle), 10),
	}
	text, err := json.Marshal(own)
	if err != nil {
		return fmt.Errorf("encode options: %w", err)
	}
	if len(text) > optionsSize {
		// An order or a topology of such length is compared by its digest.
		own["order"], own["topology"] = digestOf(own["order"]), digestOf(own["topology"])
		if text, err = json.Marshal(own); err != nil {
			return fmt.Errorf("encode options: %w", err)
		}
	}
	copy(mine, text)
	all := rows(ranks, optionsSize)
	if err := m.exchange(ctx, forOptions, mine, all); err != nil {
		return fmt.Errorf("compare options: %w", err)
	}
	for r := range all {
		theirs := map[string]string{}
		if err := json.Unmarshal(bytes.TrimRight(all[r], "\x00"), &theirs); err != nil {
			return fmt.Errorf("options of rank %d: %w: %w", r, ErrInconsistent, err)
		}
		if diff := differMaps(own, theirs); diff != nil {
			return &InconsistentError{Rank: plan.Rank(r), Fields: diff}
		}
	}
	return nil
}

// digestOf returns a short digest of a long text.
func digestOf(text string) string {
	return fmt.Sprintf("%d bytes, crc %08x", len(text), crc32.ChecksumIEEE([]byte(text)))
}

// differMaps lists the names that have different values.
func differMaps(ours, theirs map[string]string) []FieldDifference {
	var out []FieldDifference
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		if local, remote := ours[name], theirs[name]; remote != local {
			out = append(out, FieldDifference{Field: name, Local: strconv.Quote(local), Remote: strconv.Quote(remote)})
		}
	}
	return out
}

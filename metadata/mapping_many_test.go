package metadata_test

import (
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
)

// TestManyMappings has an object of very many pieces, which is saved, shortened and removed
// in several transactions.
func TestManyMappings(t *testing.T) {
	ctx := t.Context()
	kv, err := badgerkv.Open(ctx, badgerkv.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if cerr := s.Close(); cerr != nil {
			t.Error(cerr)
		}
	}()
	root, err := s.EnsureDevice(ctx, "sim0", 0o755, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.Create(ctx, root.Ino, "a", metadata.Node{Mode: metadata.TypeRegular | 0o600})
	if err != nil {
		t.Fatal(err)
	}
	pieces := make([]metadata.Mapping, 30000)
	for i := range pieces {
		pieces[i] = metadata.Mapping{
			FileOff: uint64(i) * 8192, Len: 4096, Written: uint64(i % 4097), Device: "sim0",
			Epoch: 7, Allocation: metadata.AllocationID(i), Off: uint64(i*13) << 12,
		}
	}
	for _, keep := range []int{len(pieces), 12345, 1, 0} {
		// A different first piece each time: every mapping differs or is removed.
		want := slices.Clone(pieces[len(pieces)-keep:])
		if _, err := s.SaveContent(ctx, in.Ino, func(in *metadata.Inode) error {
			in.Size = uint64(keep)
			return nil
		}, want); err != nil {
			t.Fatalf("save %d pieces: %v", keep, err)
		}
		got, err := s.Mappings(ctx, in.Ino)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d pieces: %d are stored, or differ: %v", keep, len(got), err)
		}
	}
	if err := s.Check(ctx, func(p metadata.Problem) { t.Errorf("%+v", p) }); err != nil {
		t.Error(err)
	}
}

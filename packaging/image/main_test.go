package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestImage builds an image from a tar file and a folder, unpacks it, and builds it again.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	base, root := filepath.Join(dir, "base.tar"), filepath.Join(dir, "root")
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	text := "of the base"
	if err := w.WriteHeader(&tar.Header{Name: "etc/base", Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(base, b.Bytes(), 0o600))
	check(os.MkdirAll(filepath.Join(root, "usr/bin"), 0o700))
	check(os.WriteFile(filepath.Join(root, "usr/bin/hmcfs"), []byte("the program"), 0o755))
	check(os.Symlink("/usr/bin/hmcfs", filepath.Join(root, "usr/bin/mount.hmcfs")))
	var images [2][]byte
	for i := range images {
		out := filepath.Join(dir, "image.tar")
		check(build(root, base, "1.2.3", out))
		data, err := os.ReadFile(out)
		check(err)
		images[i] = data
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("the same files are another image")
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*oci-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	there := filepath.Join(dir, "there")
	check(os.Mkdir(there, 0o700))
	check(unpack(filepath.Join(dir, "image.tar"), there))
	for name, want := range map[string]string{"etc/base": text, "usr/bin/hmcfs": "the program"} {
		if got, err := os.ReadFile(filepath.Join(there, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(there, "usr/bin/mount.hmcfs")); err != nil || to != "/usr/bin/hmcfs" {
		t.Errorf("mount.hmcfs leads to %q, %v", to, err)
	}
	if info, err := os.Stat(filepath.Join(there, "usr/bin/hmcfs")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the program is %v, %v", info, err)
	}
	for _, wrong := range []string{filepath.Join(dir, "none.tar"), "localhost:1/none"} {
		if build(root, wrong, "1.2.3", filepath.Join(dir, "no.tar")) == nil {
			t.Errorf("there is an image of the base %s", wrong)
		}
	}
}

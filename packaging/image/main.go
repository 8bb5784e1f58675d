// Image writes hmcfs as an OCI image, without a daemon of containers:
//
//	image -root DIR -base (IMAGE | ROOT.tar) -version VERSION -o IMAGE.tar
//	image -extract DIR IMAGE.tar
//
// The first puts the files below DIR, as `make install` has written them, as one layer onto a
// base: an image of a registry, or the root file system of a machine. IMAGE.tar is an OCI layout
// in a tar file, which podman, skopeo, ctr and docker load. The second unpacks all layers of such
// a file, as a container would see them.
package main

import (
	"archive/tar"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/crane"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	root := flag.String("root", "", "`directory` of the files to put into the image")
	base := flag.String("base", "", "`image` of a registry, or tar file of a root file system")
	version := flag.String("version", "", "`version` of hmcfs, for the label and the tag")
	out := flag.String("o", "", "`file` to write")
	extract := flag.String("extract", "", "`directory` to unpack the given image into")
	flag.Parse()
	var err error
	if *extract != "" {
		err = unpack(flag.Arg(0), *extract)
	} else {
		err = build(*root, *base, *version, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// build writes the image.
func build(root, base, version, out string) error {
	img, err := baseImage(base)
	if err != nil {
		return fmt.Errorf("base %s: %w", base, err)
	}
	files := out + ".files.tar"
	defer os.Remove(files)
	if err = pack(root, files); err != nil {
		return err
	}
	layer, err := tarball.LayerFromFile(files, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return err
	}
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", architecture(config.Architecture), v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/hmcfs"},
		Env:        []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "hmcfs",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source":   "https://github.com/hmcfs/hmcfs",
		},
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	return write(img, version, out)
}

// architecture returns that of the base; for one that names none, what is built for.
func architecture(of string) string {
	return cmp.Or(of, os.Getenv("GOARCH"), runtime.GOARCH)
}

// baseImage returns the base as an image.
func baseImage(base string) (v1.Image, error) {
	if !strings.HasSuffix(base, ".tar") {
		return crane.Pull(base, crane.WithPlatform(&v1.Platform{OS: "linux", Architecture: architecture("")}))
	}
	layer, err := tarball.LayerFromFile(base, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.AppendLayers(img, layer)
}

// pack writes the files below a directory into a tar file, as root's, with the time of the epoch,
// so that the same files are the same layer.
func pack(root, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		return addFile(w, root, name, d)
	})
	return errors.Join(err, w.Close())
}

// addFile writes one file. Directories are the base's: those it has may be links.
func addFile(w *tar.Writer, root, name string, d fs.DirEntry) error {
	if d.IsDir() {
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	to := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if to, err = os.Readlink(name); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, to)
	if err != nil {
		return err
	}
	if h.Name, err = filepath.Rel(root, name); err != nil {
		return err
	}
	h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime = 0, 0, "", "", time.Unix(0, 0)
	if err = w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}

// write stores the image as an OCI layout in a tar file.
func write(img v1.Image, version, out string) error {
	dir, err := os.MkdirTemp(filepath.Dir(out), "oci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": version, "io.containerd.image.name": "docker.io/library/hmcfs:" + version}
	if err = to.AppendImage(img, layout.WithAnnotations(name)); err != nil {
		return err
	}
	return run("tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "-C", dir, "-cf", out, ".")
}

// unpack writes the files of an image's layers into a directory.
func unpack(image, to string) error {
	dir, err := os.MkdirTemp("", "oci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err = run("tar", "-C", dir, "-xf", image); err != nil {
		return err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return fmt.Errorf("%s has %d images, not one", image, len(manifest.Manifests))
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	files := mutate.Extract(img)
	cmd := exec.Command("tar", "-C", to, "--numeric-owner", "-xpf", "-")
	cmd.Stdin, cmd.Stderr = files, os.Stderr
	return errors.Join(cmd.Run(), files.Close())
}

func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

package topology

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	files := map[string]*Graph{
		"machine": discovered(t, Options{Root: server2(t), Server: "a", Devices: gpus(), Peers: []Pair{{A: "cuda1", B: "cuda2"}}, Remotes: []Remote{{Name: "b<&>", Devices: []string{"host", "cuda0"}}}}),
	}
	for name, text := range map[string]string{"table": tableV1, "topo": topoV2, "own": own} {
		g, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = g
	}
	for name, g := range files {
		var b bytes.Buffer
		if err := g.SVG(&b); err != nil {
			t.Fatal(err)
		}
		if dir := os.Getenv("HMCFS_TEST_PICTURES"); dir != "" {
			if err := os.WriteFile(dir+"/"+name+".svg", b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		paths := strings.Count(b.String(), "<path ")
		if paths != len(g.Links) {
			t.Errorf("%s: %d lines for %d links", name, paths, len(g.Links))
		}
		for d := xml.NewDecoder(&b); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s is no XML: %v", name, err)
			}
		}
	}
}

func TestPictureOfTooMuch(t *testing.T) {
	var devices []Device
	for i := range maxPicture + 1 {
		devices = append(devices, Device{ID: ID(fmt.Sprint(i)), Kind: Host})
	}
	if err := made(t, devices, nil).SVG(io.Discard); !errors.Is(err, ErrFile) {
		t.Error(err)
	}
	if err := made(t, nil, nil).SVG(io.Discard); err != nil {
		t.Error(err)
	}
}

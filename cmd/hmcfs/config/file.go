package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// SystemFile is the config file of the machine.
const SystemFile = "/etc/hmcfs/config.yaml"

// File is a config file to read.
type File struct {
	Path string
	// Required makes a missing file an error.
	Required bool
}

// Files returns the config files to read: only the named one, or else those of the machine
// and of the user, in this order, which need not exist.
func Files(named string, getenv func(string) string) []File {
	if named == "" {
		named = getenv("HMCFS_CONFIG")
	}
	if named != "" {
		return []File{{Path: named, Required: true}}
	}
	files := []File{{Path: SystemFile}}
	home := getenv("XDG_CONFIG_HOME")
	if home == "" && getenv("HOME") != "" {
		home = filepath.Join(getenv("HOME"), ".config")
	}
	if home != "" {
		files = append(files, File{Path: filepath.Join(home, "hmcfs", "config.yaml")})
	}
	return files
}

// read returns the file's values by option name, or all of its faults.
func (f File) read(readFile func(string) ([]byte, error)) (map[string][]Given, error) {
	if readFile == nil {
		readFile = os.ReadFile
	}
	data, err := readFile(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !f.Required:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("config file %s: no such file; create it, or omit --config", f.Path)
	case err != nil:
		return nil, fmt.Errorf("config file %s: %w", f.Path, err)
	}
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, fmt.Errorf("config file %s: %s", f.Path, firstLine(err.Error()))
	}
	out := map[string][]Given{}
	var faults []error
	for _, doc := range tree.Docs {
		faults = append(faults, f.document(doc.Body, out))
	}
	return out, errors.Join(faults...)
}

func (f File) document(body ast.Node, out map[string][]Given) error {
	var entries []*ast.MappingValueNode
	switch n := body.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return nil
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	default:
		return fmt.Errorf("config file %s line %d: not a list of key: value", f.Path, body.GetToken().Position.Line)
	}
	var faults []error
	for _, e := range entries {
		faults = append(faults, f.entry(e, out))
	}
	return errors.Join(faults...)
}

func (f File) entry(e *ast.MappingValueNode, out map[string][]Given) error {
	key := e.Key.GetToken().Value
	where := fmt.Sprintf("config file %s line %d", f.Path, e.Key.GetToken().Position.Line)
	var keys []string
	for _, p := range Table() {
		if p.Key() != key {
			keys = append(keys, p.Key())
			continue
		}
		texts, err := scalars(e.Value)
		if err == nil && len(texts) != 1 && !p.IsList() {
			err = errors.New("takes one value")
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", where, key, err)
		}
		for _, t := range texts {
			out[p.Name] = append(out[p.Name], Given{Text: t, Source: where})
		}
		return nil
	}
	return fmt.Errorf("%s: unknown key %q%s", where, key, didYouMean(key, keys))
}

// scalars returns the text of a plain value, or the texts of a list of them.
func scalars(n ast.Node) ([]string, error) {
	switch v := n.(type) {
	case *ast.SequenceNode:
		var out []string
		for _, item := range v.Values {
			t, err := scalars(item)
			if err != nil {
				return nil, err
			}
			out = append(out, t...)
		}
		return out, nil
	case *ast.NullNode:
		return nil, errors.New("has no value")
	case ast.ScalarNode:
		return []string{v.GetToken().Value}, nil
	}
	return nil, errors.New("is neither a plain value nor a list of them")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
)

// Family describes the valid device specifications of one family. They are checked before
// anything is changed; the family's driver has the final say.
type Family struct {
	Name string
	// Params are looked up by name.
	Params []Param
}

// Param is one parameter of a specification.
type Param struct {
	Name string
	Kind ParamKind
	// Words are the permitted values of a ParamWord.
	Words []string
}

// ParamKind is the type of a parameter's value.
type ParamKind int

// The kinds of parameters.
const (
	ParamSize ParamKind = iota + 1
	ParamRate
	ParamTime
	ParamBool
	ParamWord
)

// checkDevices checks every specification, and that no device is named twice.
func checkDevices(texts []string, families []Family) []error {
	var faults []error
	type key struct {
		family  devices.Family
		ordinal devices.Ordinal
	}
	seen := map[key]string{}
	for _, text := range texts {
		spec, err := checkDevice(text, families)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		k := key{spec.Family, spec.Ordinal}
		if first, twice := seen[k]; twice {
			faults = append(faults, fmt.Errorf("devices %q and %q are both %s:%d; leave one out", first, text, k.family, k.ordinal))
		}
		seen[k] = text
	}
	return faults
}

func checkDevice(text string, families []Family) (devices.Spec, error) {
	spec, err := devices.ParseSpec(text)
	if err != nil || families == nil {
		return spec, err
	}
	var names []string
	for _, f := range families {
		if f.Name == string(spec.Family) {
			return spec, f.check(spec)
		}
		names = append(names, f.Name)
	}
	hint := didYouMean(string(spec.Family), names)
	if strings.EqualFold(string(spec.Family), "gpu") {
		hint = "; hmcfs devices shows those of this machine"
	}
	return spec, fmt.Errorf("device %q: unknown family %q; use one of %s%s", text, spec.Family, strings.Join(names, ", "), hint)
}

// check reads every parameter. It returns all faults in one line, which names the device
// once.
func (f Family) check(spec devices.Spec) error {
	read := spec.Read()
	var names, faults []string
	for _, p := range f.Params {
		names = append(names, p.Name)
		if fault := p.read(read); fault != "" {
			faults = append(faults, fault)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Params)) {
		if slices.Contains(names, name) {
			continue
		}
		read.Text(name, "")
		fault := fmt.Sprintf("%s has no parameter %q", f.Name, name)
		if near := didYouMean(name, names); near != "" {
			fault += near
		} else {
			fault += "; it has " + strings.Join(names, ", ")
		}
		faults = append(faults, fault)
	}
	err := read.Err()
	switch text := strings.Join(faults, "; "); {
	case text == "":
		return err
	case err == nil:
		return fmt.Errorf("device %q: %s", spec.Text, text)
	default:
		return fmt.Errorf("%w; %s", err, text)
	}
}

// read reads the parameter, and returns a fault that reading alone does not detect: an
// unknown word. Other faults are in the error of from.
func (p Param) read(from *devices.Params) (fault string) {
	switch p.Kind {
	case ParamSize:
		from.Size(p.Name, 0)
	case ParamRate:
		from.Rate(p.Name, 0)
	case ParamTime:
		from.Duration(p.Name, 0)
	case ParamBool:
		from.Bool(p.Name, false)
	case ParamWord:
		word := from.Text(p.Name, p.Words[0])
		if !slices.Contains(p.Words, word) {
			return fmt.Sprintf("%s=%s is unknown; use %s%s", p.Name, word, strings.Join(p.Words, " or "), didYouMean(word, p.Words))
		}
	}
	return ""
}

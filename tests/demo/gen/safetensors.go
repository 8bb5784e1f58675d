package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// tensor is one entry of a safetensors file.
type tensor struct {
	name  string
	dtype string
	width uint64 // bytes of an element
	shape []uint64
	draw  drawer
}

// size is the length in bytes.
func (t tensor) size() uint64 {
	n := t.width
	for _, d := range t.shape {
		n *= d
	}
	return n
}

// hidden is the length of the model's rows. Rows of every type are multiples
// of 8 bytes, which keeps each tensor aligned.
const hidden = 1024

// modelOf lays out a small model of about size bytes: half of it bfloat16
// layers, the rest an embedding and some others. Wide types come first, as
// the format's own library writes them.
func modelOf(size uint64) []tensor {
	rows := func(share, width uint64) []uint64 {
		return []uint64{max(size*share/100/(hidden*width), 1), hidden}
	}
	model := []tensor{
		{"prompt.token_ids", "I64", 8, rows(2, 8), drawInt64},
		{"model.embed_tokens.weight", "F32", 4, rows(30, 4), drawFloat32},
		{"model.norm.weight", "F32", 4, []uint64{hidden}, drawFloat32},
	}
	for i := range 4 {
		name := fmt.Sprintf("model.layers.%d.mlp.weight", i)
		model = append(model, tensor{name, "BF16", 2, rows(12, 2), drawBFloat16})
	}
	return append(model,
		tensor{"lm_head.weight", "F16", 2, rows(16, 2), drawFloat16},
		tensor{"attention.mask", "U8", 1, rows(4, 1), drawBytes})
}

// writeSafetensors writes length, header and data of all tensors.
func writeSafetensors(w io.Writer, tensors []tensor, seed uint64) error {
	head, err := safetensorsHeader(tensors)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for i, t := range tensors {
		if err := writeRandom(w, t.size(), seed, uint64(i)+1, t.draw); err != nil {
			return err
		}
	}
	return nil
}

// safetensorsHeader is the length of the JSON in 8 bytes and the JSON, padded
// with spaces so that the data begins at a multiple of 8.
func safetensorsHeader(tensors []tensor) ([]byte, error) {
	type entry struct {
		Dtype   string    `json:"dtype"`
		Shape   []uint64  `json:"shape"`
		Offsets [2]uint64 `json:"data_offsets"`
	}
	all := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var end uint64
	for _, t := range tensors {
		begin := end
		end += t.size()
		all[t.name] = entry{t.dtype, t.shape, [2]uint64{begin, end}}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	const align = 8
	pad := (align - len(text)%align) % align
	text = append(text, strings.Repeat(" ", pad)...)
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

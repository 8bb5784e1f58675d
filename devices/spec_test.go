package devices

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseSpec(t *testing.T) {
	type params = map[string]string
	for text, want := range map[string]Spec{
		"host":                  {Family: "host", Params: params{}},
		"sim:3":                 {Family: "sim", Ordinal: 3, Params: params{}},
		"sim3":                  {Family: "sim", Ordinal: 3, Params: params{}},
		"cuda0,size=1GiB":       {Family: "cuda", Params: params{"size": "1GiB"}},
		"ocl12":                 {Family: "opencl", Ordinal: 12, Params: params{}},
		"opencl2":               {Family: "opencl", Ordinal: 2, Params: params{}},
		" sim:0,size=1GiB ":     {Family: "sim", Params: params{"size": "1GiB"}},
		"sim,a=1,b=2=3":         {Family: "sim", Params: params{"a": "1", "b": "2=3"}},
		"sim:2147483647,":       {Family: "sim", Ordinal: 2147483647, Params: params{}},
		"host,size=4GiB,,x=yes": {Family: "host", Params: params{"size": "4GiB", "x": "yes"}},
	} {
		want.Text = text
		got, err := ParseSpec(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ParseSpec(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"":               "no family",
		":0":             "no family",
		",size=1":        "no family",
		"sim:":           "not a device number",
		"sim:x":          "not a device number",
		"sim:-1":         "not a device number",
		"sim:+1":         "not a device number",
		"sim:2147483648": "not a device number",
		"sim2147483648":  "not a device number",
		"sim:0:1":        "not a device number",
		"sim,size":       "not key=value",
		"sim,=1":         "not key=value",
		"sim,size=":      "not key=value",
		"sim,a=1,a=1":    "given twice",
	} {
		if got, err := ParseSpec(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseSpec(%q) = %+v, %v; want %q", text, got, err, says)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, seed := range []string{"host", "sim:0,size=1GiB,bandwidth=20GB/s,latency=5us", "sim:-1", ",,", "a:1,b=", "x,y=z=w,y=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := ParseSpec(text)
		if err != nil {
			return
		}
		if spec.Family == "" || spec.Ordinal < 0 || spec.Text != text {
			t.Errorf("%q: %+v", text, spec)
		}
		for key, value := range spec.Params {
			if key == "" || value == "" || strings.ContainsAny(key, ",=") || strings.Contains(value, ",") {
				t.Errorf("%q: parameter %q=%q", text, key, value)
			}
		}
		p := spec.Read()
		p.Size("size", 1)
		p.Rate("bandwidth", 1)
		p.Duration("latency", 1)
		p.Bool("mapped", true)
		_ = p.Err()
	})
}

func read(t *testing.T, text string) *Params {
	t.Helper()
	spec, err := ParseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec.Read()
}

func TestNameOf(t *testing.T) {
	for text, want := range map[string]Name{
		"cuda:0": "cuda0", "opencl:12": "ocl12", "sim:3": "sim3", "b/cuda:1": "b/cuda1", "b/opencl:1": "b/ocl1",
		"cuda0": "cuda0", "host": "host", "": "", "cuda:": "cuda:", "cuda:x": "cuda:x", "sim:0,size=1GiB": "sim:0,size=1GiB",
		"cuda:-1": "cuda:-1", "../keys": "../keys",
	} {
		if got := NameOf(text); got != want {
			t.Errorf("%q is device %q, want %q", text, got, want)
		}
	}
}

func TestParams(t *testing.T) {
	p := read(t, "sim:0,size=1MiB,rate=20GB/s,slow=5us,on=yes,off=0,word=text")
	if p.Size("size", 7) != MiB || p.Size("none", 7) != 7 ||
		p.Rate("rate", 1) != 20e9 || p.Rate("none", 1) != 1 ||
		p.Duration("slow", 0) != 5*time.Microsecond || p.Duration("none", time.Second) != time.Second ||
		!p.Bool("on", false) || p.Bool("off", true) || !p.Bool("none", true) ||
		p.Text("word", "") != "text" || p.Text("none", "x") != "x" {
		t.Error("a parameter was misread")
	}
	if err := p.Err(); err != nil {
		t.Error(err)
	}
}

func TestParamsGatherFaults(t *testing.T) {
	p := read(t, "sim:0,size=0,rate=fast,slow=soon,back=-1s,on=perhaps,zebra=1,ape=2")
	p.Size("size", 0)
	p.Rate("rate", 0)
	p.Duration("slow", 0)
	p.Duration("back", 0)
	p.Bool("on", false)
	const want = `device "sim:0,size=0,rate=fast,slow=soon,back=-1s,on=perhaps,zebra=1,ape=2": ` +
		`size is 0; rate: size "fast": unknown unit "fast"; use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB; ` +
		`slow=soon is not a duration such as 5us; back=-1s is not a duration such as 5us; on=perhaps is not true or false; ` +
		`sim has no parameter "ape"; sim has no parameter "zebra"`
	for range 2 {
		if err := p.Err(); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

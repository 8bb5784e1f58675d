package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestRoundTripsOfOffers(t *testing.T) {
	ways := Ways{
		{Transport: TransportRDMA, Facts: []byte("no card")},
		{Transport: TransportSHM, Usable: true, Facts: bytes.Repeat([]byte{0xff}, MaxFacts)},
		{Transport: TransportTCP, Usable: true, Facts: []byte{}},
	}
	got, err := ParseWays(body(t, ways.Append(nil, KindChoice), KindChoice))
	if err != nil || !reflect.DeepEqual(got, ways) {
		t.Errorf("CHOICE: %+v, %v", got, err)
	}
	if w, ok := got.Find(TransportSHM); !ok || !w.Usable {
		t.Errorf("shm: %+v, %v", w, ok)
	}
	if w, ok := got.Find(TransportUCX); ok {
		t.Errorf("ucx: %+v", w)
	}
	long := Ways{{Transport: TransportUCX, Facts: []byte(strings.Repeat("ä", MaxFacts))}}
	got, err = ParseWays(body(t, long.Append(nil, KindProposal), KindProposal))
	if err != nil || len(got) != 1 || string(got[0].Facts) != strings.Repeat("ä", MaxFacts/2) {
		t.Errorf("long reason: %+v, %v", got, err)
	}
	start := Start{Files: MaxFiles, Blob: make([]byte, MaxStart)}
	if got, err := ParseStart(body(t, start.Append(nil), KindStart)); err != nil || !reflect.DeepEqual(got, start) {
		t.Errorf("START: %+v, %v", got, err)
	}
	offer := Offer{Descriptor: Descriptor{Key: 1 << 63, Size: 1<<63 - 1, Rights: Writable}, Files: 1, Blob: make([]byte, MaxOffer)}
	if got, err := ParseOffer(body(t, offer.Append(nil), KindOffer)); err != nil || !reflect.DeepEqual(got, offer) {
		t.Errorf("OFFER: %+v, %v", got, err)
	}
	decline := Decline{Key: 3, Reason: "too large"}
	if got, err := ParseDecline(body(t, decline.Append(nil), KindDecline)); err != nil || got != decline {
		t.Errorf("DECLINE: %+v, %v", got, err)
	}
	if got, err := ParseKey(body(t, AppendKey(nil, KindWithdrawn, 1<<63), KindWithdrawn)); err != nil || got != 1<<63 {
		t.Errorf("WITHDRAWN: %x, %v", got, err)
	}
}

func TestOffersThatAreRefused(t *testing.T) {
	good := Offer{Descriptor: Descriptor{Key: 1, Size: 2, Rights: Readable}}
	for name, change := range map[string]func(o *Offer){
		"no key":         func(o *Offer) { o.Key = 0 },
		"no bytes":       func(o *Offer) { o.Size = 0 },
		"2^63 bytes":     func(o *Offer) { o.Size = 1 << 63 },
		"no rights":      func(o *Offer) { o.Rights = 0 },
		"unknown rights": func(o *Offer) { o.Rights = 4 },
		"many files":     func(o *Offer) { o.Files = MaxFiles + 1 },
		"large":          func(o *Offer) { o.Blob = make([]byte, MaxOffer+1) },
	} {
		o := good
		change(&o)
		if _, err := ParseOffer(o.Append(nil)[HeaderSize:]); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, frame := range map[string][]byte{
		"unknown":       {9, 1, 0, 0},
		"twice":         {2, 1, 0, 0, 2, 1, 0, 0},
		"slower first":  {4, 1, 0, 0, 2, 1, 0, 0},
		"neither":       {2, 2, 0, 0},
		"cut":           {2, 1, 0},
		"short of text": {2, 0, 2, 0, 'a'},
		"no text":       {2, 0, 1, 0, 0xff},
	} {
		if w, err := ParseWays(frame); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %+v, %v", name, w, err)
		}
	}
	if _, err := ParseStart(append([]byte{0, 1}, make([]byte, 6)...)); !errors.Is(err, ErrFrame) {
		t.Errorf("START with a field that must be zero: %v", err)
	}
}

package collective

import "fmt"

// ident is a call's arguments, and what is found out for them once.
type ident struct {
	frame frame
	// digest is the part of the frame in each message's header, and name how the
	// call is called.
	digest uint16
	name   string
	// agreed says that all ranks have compared it.
	agreed bool
	// age is guard.age when it was made: what is older was forgotten.
	age uint32
}

// maxAgreed bounds how many calls are remembered as compared. All ranks forget
// at the same call, since they have made the same ones. Of those that came to
// nothing there may be as many again.
const maxAgreed = 4096

// intern returns the ident of a frame, the same one until all are forgotten.
func (gd *guard) intern(f frame) *ident {
	if i := gd.idents[f]; i != nil {
		return i
	}
	if len(gd.idents) >= 2*maxAgreed {
		gd.forget()
	}
	i := &ident{frame: f, digest: f.digest(), name: f.name(), age: gd.age}
	gd.idents[f] = i
	return i
}

// forget has all calls be new ones.
func (gd *guard) forget() {
	clear(gd.idents)
	gd.agreed = 0
	gd.age++
}

// agree notes that all ranks have compared the call under way.
func (gd *guard) agree() {
	if gd.ident.agreed {
		return
	}
	if gd.agreed == maxAgreed {
		gd.forget()
		gd.ident.age = gd.age
		gd.idents[gd.ident.frame] = gd.ident
	}
	gd.ident.agreed = true
	gd.agreed++
}

// identOf returns that of a call.
func (g *Group) identOf(r *running) *ident {
	p := r.prepared
	if p.ident == nil || p.ident.age != g.guard.age {
		p.ident = g.guard.intern(frameOf(&r.task, r.plan.Algorithm))
	}
	return p.ident
}

// digest is 16 bits that stand for a frame.
func (f *frame) digest() uint16 {
	const polynomial = 0x1021
	sum := uint16(0xffff)
	for _, b := range f {
		sum ^= uint16(b) << 8
		for range 8 {
			if carry := sum & 0x8000; carry != 0 {
				sum = sum<<1 ^ polynomial
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}

// name returns the name of a call of the frame.
func (f *frame) name() string {
	fields := f.fields()
	if f[0] >= kindControl {
		return fields[0].Local
	}
	return fmt.Sprintf("%s of %s × %s by %s", fields[0].Local, fields[5].Local, fields[1].Local, fields[6].Local)
}

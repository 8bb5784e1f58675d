package daemon

import "slices"

// undo has the steps that take back what was built so far.
type undo struct{ steps []func() }

func (u *undo) push(step func()) { u.steps = append(u.steps, step) }

// run takes everything back, the last step first, once.
func (u *undo) run() {
	for _, step := range slices.Backward(u.steps) {
		step()
	}
	u.steps = nil
}

// release keeps everything.
func (u *undo) release() { u.steps = nil }

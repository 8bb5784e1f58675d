package daemon

import "slices"

// undo holds the steps that undo what was built so far.
type undo struct{ steps []func() }

func (u *undo) push(step func()) { u.steps = append(u.steps, step) }

// run undoes everything, the last step first. Further calls do nothing.
func (u *undo) run() {
	for _, step := range slices.Backward(u.steps) {
		step()
	}
	u.steps = nil
}

// release discards the steps, so that everything stays.
func (u *undo) release() { u.steps = nil }

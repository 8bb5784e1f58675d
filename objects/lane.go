package objects

import "context"

// lane admits one change of an object's content at a time. It is a queue rather than a
// lock: readers never wait for it, it belongs to one object, and it is held during
// device copies. Waiting ends with the context.
type lane chan struct{}

func newLane() lane { return make(lane, 1) }

func (l lane) enter(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	default:
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lane) leave() { <-l }

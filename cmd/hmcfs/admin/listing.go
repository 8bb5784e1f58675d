package admin

import (
	"net/http"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// keys lists keys.
func (s *Server) keys(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	ctx, work, err := s.shares.begin(r.Context(), c)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer s.shares.end(work)
	query, out := r.URL.Query(), newLines(w)
	err = s.opts.Keyed.Keys(ctx, callerOf(c.peer), query.Get("prefix"), query.Get("published") == "1",
		func(k adminapi.Key) error {
			out.put(k)
			return out.failed
		})
	switch {
	case err == nil:
		out.end()
	case out.sent:
		// Lines have gone out: that there are no more of them is told by an
		// answer that breaks off.
		panic(http.ErrAbortHandler)
	default:
		s.answer(w, nil, err)
	}
}

// events tells what happens to keys from the moment of its answer's head on,
// until either side ends it. What a client does not read is bounded by the
// queue.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	ctx, work, err := s.shares.begin(r.Context(), c)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer s.shares.end(work)
	leave, err := s.sessions.listen(c)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer leave()
	queue := s.opts.Keyed.Listen(callerOf(c.peer))
	defer queue.Close()
	w.Header().Set("Content-Type", linesType)
	out := newLines(w)
	out.limit = 0
	for err = out.flush(); err == nil; err = out.flush() {
		e, nerr := queue.Next(ctx)
		if nerr != nil {
			return // by whichever side
		}
		out.put(e)
	}
}

package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
)

func (s *Server) keys(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	ctx, work, err := s.shares.begin(r.Context(), c)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer s.shares.end(work)
	begun, listed, query, out := time.Now(), 0, r.URL.Query(), newLines(w)
	asked := adminapi.KeysRequest{Prefix: query.Get("prefix"), Published: query.Get("published") == "1", After: query.Get("after")}
	err = s.opts.Keyed.Keys(ctx, callerOf(c.peer), asked, func(k adminapi.Key) error {
		out.put(k)
		listed++
		return out.failed
	})
	s.opts.Calls.recordRequest(c.peer, frames.RequestKeys, listed, begun, err)
	switch {
	case err == nil:
		out.write()
	case out.sent:
		// Lines have been sent already: breaking off the answer tells the client that it is
		// incomplete.
		panic(http.ErrAbortHandler)
	default:
		s.answer(w, nil, err)
	}
}

// events sends the events of keys from the moment the head of its answer is sent, until
// either side ends it. The queue limits the number of unread events.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	ctx, work, err := s.shares.begin(r.Context(), c)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer s.shares.end(work)
	begun := time.Now()
	leave, err := s.sessions.listen(c)
	s.opts.Calls.recordRequest(c.peer, frames.RequestWatch, 0, begun, err)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	defer leave()
	queue := s.opts.Keyed.Listen(callerOf(c.peer))
	defer queue.Close()
	w.Header().Set("Content-Type", linesType)
	if s.opts.Continues > 0 {
		w.Header().Set(adminapi.ContinuesHeader, strconv.Itoa(int(s.opts.Continues.Seconds())))
	}
	out := newLines(w)
	out.limit = 0
	for err = out.flush(); err == nil; err = out.flush() {
		e, nerr := queue.Next(ctx)
		if nerr != nil {
			return // ended by either side
		}
		out.put(e)
	}
}

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/client"
)

func eventKinds() []string {
	return as[string]([]objects.EventKind{
		objects.EventCreated, objects.EventRemoved, objects.EventExpired, objects.EventLost,
		objects.EventPublished, objects.EventConsumed, objects.EventWithdrawn, objects.EventConflict, objects.EventDropped,
	})
}

type watchFlags struct {
	mount     string
	kinds     []string
	published bool
	count     int
}

func (a keyVerbs) watchVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [--event KIND,...] [--published] [--count N] [KEY...]",
		Short: "Show events of keys as they happen",
		Long: "Print a line of JSON for each event from now on, until ^C or until N events: created, removed,\n" +
			"expired, lost, published, consumed, withdrawn, conflict, and dropped, which counts events that\n" +
			"were discarded because this command read too slowly. docs/semantics.md describes their fields.\n" +
			"KEYs, --event and --published select events.\n\n" +
			"A line on standard error reports when listening has started.",
		Example: "  hmcfs watch --event created,lost\n  hmcfs watch --published --count 1 step1",
		Args:    arguments(0, -1, "any number of KEYs"),
	}
	f := &watchFlags{}
	addJSON(cmd) // it prints nothing else
	addMountFlag(cmd, &f.mount)
	cmd.Flags().StringSliceVar(&f.kinds, "event", nil, "Kinds of events to show. Default: all.")
	cmd.Flags().BoolVar(&f.published, "published", false, "The same as --event published,consumed,withdrawn.")
	cmd.Flags().IntVar(&f.count, "count", 0, "Number of events to show. Default: no limit.")
	completeWith(cmd, "event", eventKinds()...)
	return runs(cmd, func(ctx context.Context, args []string) error {
		return a.watch(ctx, args, f)
	})
}

func (a keyVerbs) watch(ctx context.Context, args []string, f *watchFlags) error {
	if f.count < 0 {
		return usage(fmt.Errorf("--count %d: use 1 or more", f.count))
	}
	for _, kind := range f.kinds {
		if !slices.Contains(eventKinds(), kind) {
			return usage(fmt.Errorf("--event %s is unknown; use one of %s", kind, strings.Join(eventKinds(), ", ")))
		}
	}
	if f.published {
		f.kinds = append(f.kinds, string(objects.EventPublished), string(objects.EventConsumed), string(objects.EventWithdrawn))
	}
	var keys []string
	if len(args) > 0 {
		pairs, err := keyArgs(args, a.Stdin, keysAlone)
		if err != nil {
			return err
		}
		keys = keysOf(pairs)
	}
	m, err := a.mountFor(f.mount)
	if err != nil {
		return err
	}
	events, err := a.listen(ctx, m)
	if err != nil {
		return err
	}
	a.note("watching %s", m.MountPoint)
	return errors.Join(f.show(ctx, a.app, events, keys), events.Close())
}

// show prints events until the requested number is reached.
func (f *watchFlags) show(ctx context.Context, a *app, events *client.Watch, keys []string) error {
	out := json.NewEncoder(a.Stdout)
	out.SetEscapeHTML(false)
	for shown := 0; f.count == 0 || shown < f.count; {
		e, err := events.Next(ctx)
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		missed := e.Kind == string(objects.EventDropped)
		if !missed && (len(f.kinds) > 0 && !slices.Contains(f.kinds, e.Kind) || len(keys) > 0 && !slices.Contains(keys, e.Key)) {
			continue
		}
		if err = out.Encode(e); err != nil {
			return fmt.Errorf("write an event: %w", err)
		}
		if !missed {
			shown++
		}
	}
	return nil
}

package cli

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestHelperArguments(t *testing.T) {
	file := emptyConfig(t)
	for _, c := range []struct {
		args []string
		want []string
		fake bool
		err  string
	}{
		{args: []string{"none", "/m", "-o", "rw,noexec"}, want: []string{"mount", "-o", "rw,noexec", "--", "/m"}},
		{args: []string{"-sn", "hmcfs", "/m", "-v", "-orw", "-t", "hmcfs"}, want: []string{"mount", "-o", "rw", "--", "/m"}},
		{args: []string{"hmcfs", "/m", "-f"}, want: []string{"mount", "--", "/m"}, fake: true},
		{args: []string{file, "-weird", "/m"}, err: "unknown flag -weird"},
		{args: []string{file, "/m"}, want: []string{"mount", "--config", file, "--", "/m"}},
		{args: []string{"/somewhere/hmcfs", "/m"}, want: []string{"mount", "--", "/m"}},
		{args: []string{"/m"}, err: "needs SOURCE and MOUNTPOINT, 1 given"},
		{args: []string{"hmcfs", "/m", "-o"}, err: "-o needs a value"},
	} {
		got, fake, err := parseHelper(c.args)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %v, want %q", c.args, err, c.err)
			}
			continue
		}
		if err != nil || fake != c.fake || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, fake %t, %v", c.args, got, fake, err)
		}
	}
}

func TestHelperExitCodes(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"/m"}, mountUsage},
		{[]string{"none", "/nonexistent", "-o", "bogus"}, mountUsage},
		{[]string{"none", "/nonexistent"}, mountFailure},
		{[]string{"none", "/nonexistent", "-f"}, 0},
	} {
		var out, errs bytes.Buffer
		code := Run(context.Background(), Env{
			Args: append([]string{"/sbin/mount.hmcfs"}, c.args...), Stdout: &out, Stderr: &errs,
			Getenv: func(name string) string {
				return map[string]string{"HMCFS_CONFIG": emptyConfig(t), "HOME": t.TempDir()}[name]
			}, UID: os.Geteuid(),
		})
		if code != c.want {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.want, errs.String())
		}
	}
}

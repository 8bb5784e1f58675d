package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestScripts runs tests/script/*.txtar with the real program. In addition to the features of
// testscript, a script has the commands of scriptCommands, the programs hmcfs and mount.hmcfs,
// the conditions of kit.Missing such as [fuse], and in its environment:
//
//	MNT                an empty directory, to be mounted at
//	STATE, RUN         the state and runtime directories, which the program
//	                   uses by default
//
// A script fails if it leaves a mount or a running process.
func TestScripts(t *testing.T) {
	kit.Require(t, "fuse", "root")
	testscript.Run(t, testscript.Params{
		Dir:                 "script",
		WorkdirRoot:         mnt.Base(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setUpScript,
		Condition:           func(cond string) (bool, error) { return kit.Missing(cond) == nil, nil },
		Cmds:                scriptCommands(),
	})
}

func setUpScript(env *testscript.Env) error {
	dir := env.WorkDir
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "mnt"), 0o755); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"MNT": filepath.Join(dir, "mnt"), "STATE": filepath.Join(dir, "state"), "RUN": filepath.Join(dir, "run"),
		"HMCFS_STATE_DIR": filepath.Join(dir, "state"), "HMCFS_RUNTIME_DIR": filepath.Join(dir, "run"),
		"XDG_CONFIG_HOME": filepath.Join(dir, "config"),
	} {
		env.Setenv(name, value)
	}
	env.Defer(func() {
		left := mnt.MountedBelow(dir)
		err := mnt.Clear(dir)
		if len(left) != 0 || err != nil {
			env.T().Log(fmt.Sprintf("left mounted: %q; clearing: %v", left, err))
			env.T().FailNow()
		}
	})
	return nil
}

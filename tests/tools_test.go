package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// tool is a program that is not aware of hmcfs.
type tool struct {
	name  string
	needs []string
	// bulk tools move data in the ways in which devices differ: make test runs the others on two devices only.
	bulk bool
	// script runs in an empty directory of a device. $SRC is a tree of files, $TMP a directory
	// outside the mount, $OTHER a directory of another device.
	script string
}

// TestTools runs common tools in the directories of devices.
func TestTools(t *testing.T) {
	kit.Check(t)
	devices := []string{"host,size=256MiB", "sim:0,size=256MiB"}
	names := []string{"host", "sim0"}
	if !testing.Short() && kit.Missing("opencl") == nil {
		devices, names = append(devices, "opencl:0,size=256MiB"), append(names, "ocl0")
	}
	m := mnt.Mount(t, mnt.Options{Devices: devices})
	src := sourceTree(t)
	for i, device := range names {
		for _, tc := range tools() {
			if device == "ocl0" && !tc.bulk && !kit.Exhaustive() {
				continue
			}
			t.Run(device+"/"+tc.name, func(t *testing.T) {
				for _, need := range tc.needs {
					kit.Require(t, "tool:"+need)
				}
				dir, other := m.Path(device, tc.name), m.Path(names[(i+1)%len(names)], "other-"+tc.name)
				for _, d := range []string{dir, other} {
					if err := os.Mkdir(d, 0o755); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = os.RemoveAll(d) }) // the mount is removed too
				}
				runScript(t, dir, tc.script, "SRC="+src, "TMP="+t.TempDir(), "OTHER="+other)
			})
		}
	}
}

// prelude starts each script: set -e ignores commands after an exclamation mark and before &&.
const prelude = `no() { if "$@"; then exit 1; fi; }
`

// runScript runs a script in a directory; the script ends at the first failure.
func runScript(t *testing.T, dir, script string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-xc", prelude+script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0")
	cmd.Env = append(cmd.Env, env...)
	// Processes that a script leaves must not keep the pipe open.
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// sourceTree creates a tree with all kinds of files outside the mount.
func sourceTree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	for _, d := range []string{"empty", "deep/er/and/deeper"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, size := range map[string]int{
		"nothing": 0, "one": 1, "page": 4096, "odd": 70_001, "big": 3<<20 + 5, "deep/a": 4097, "deep/er/and/deeper/b": 1<<20 - 1,
	} {
		seed := uint64(len(name) + size)
		if err := os.WriteFile(filepath.Join(dir, name), kit.Bytes(seed, 0, size), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	var long strings.Builder
	for i := range 200 {
		long.WriteString(strings.Repeat("word ", i%17) + "\n")
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(path("text"), []byte(long.String()), 0o604),
		os.Truncate(path("page"), 900_000),
		os.Link(path("odd"), path("deep/second-name")),
		os.Symlink("../odd", path("deep/symlink")),
		os.Symlink("nowhere", path("dangling")),
		unix.Chmod(path("one"), 0o4755),
		os.Chtimes(path("big"), time.Unix(1e9, 0), time.Unix(1e9, 123_456_789)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tools() []tool {
	return []tool{
		{name: "tar", needs: []string{"tar"}, script: `
			tar --format=posix -cf all.tar -C "$SRC" .
			mkdir x; tar xpf all.tar -C x; diff -r --no-dereference "$SRC" x
			[ "$(stat -c '%a %h' x/odd x/one)" = "$(stat -c '%a %h' "$SRC"/odd "$SRC"/one)" ]
			[ "$(stat -c %y x/big)" = "$(stat -c %y "$SRC"/big)" ]
			tar czf - x | tar tzf - >/dev/null
			tar df all.tar -C x`},
		{name: "rsync", needs: []string{"rsync"}, script: `
			rsync -aH --inplace "$SRC"/ copy/; diff -r --no-dereference "$SRC" copy
			cp -a "$SRC" "$TMP"/changed
			printf change | dd of="$TMP"/changed/big bs=1 seek=1500000 conv=notrunc status=none
			truncate -s 1000 "$TMP"/changed/odd; rm "$TMP"/changed/one
			rsync -aH --inplace --no-whole-file --delete "$TMP"/changed/ copy/; diff -r --no-dereference "$TMP"/changed copy
			rsync -aHc copy/ "$TMP"/back/; diff -r --no-dereference copy "$TMP"/back
			rsync -a --sparse "$SRC"/page sparse; cmp sparse "$SRC"/page`},
		{name: "cp", bulk: true, script: `
			cp -a "$SRC" copy; diff -r --no-dereference "$SRC" copy
			cp -a copy "$OTHER"/copy; diff -r --no-dereference "$SRC" "$OTHER"/copy
			cp -a "$OTHER"/copy again; diff -r --no-dereference "$SRC" again
			cp -a again "$TMP"/out; diff -r --no-dereference "$SRC" "$TMP"/out
			[ "$(stat -c '%a %h %Y' again/odd again/one)" = "$(stat -c '%a %h %Y' "$SRC"/odd "$SRC"/one)" ]
			cp --reflink=never --sparse=always "$SRC"/page p; cmp p "$SRC"/page
			cp p p2; cp p2 p; cmp p "$SRC"/page`},
		{name: "mv", bulk: true, script: `
			cp "$SRC"/big a; mv a b; mv b "$OTHER"/c; [ ! -e b ]; cmp "$OTHER"/c "$SRC"/big
			mv "$OTHER"/c .; cmp c "$SRC"/big
			cp -a "$SRC" tree; mv tree "$OTHER"/; diff -r --no-dereference "$SRC" "$OTHER"/tree; [ ! -e tree ]
			mv "$OTHER"/tree "$TMP"/; diff -r --no-dereference "$SRC" "$TMP"/tree
			echo x >x; mv -n c x; [ "$(cat x)" = x ]; mv --exchange c x 2>/dev/null || true`},
		{name: "dd", bulk: true, script: `
			dd if="$SRC"/big of=a bs=1M oflag=direct status=none; cmp a "$SRC"/big
			dd if=a bs=64k iflag=direct status=none | cmp - "$SRC"/big
			dd if=a of=b bs=1M iflag=direct oflag=direct status=none; cmp b "$SRC"/big
			dd if="$SRC"/big of=c bs=4097 status=none; cmp c "$SRC"/big
			cp "$SRC"/big "$TMP"/d; cp "$SRC"/big d
			for f in d "$TMP"/d; do dd if="$SRC"/odd of=$f bs=1000 seek=777 conv=notrunc,fsync status=none; done
			cmp d "$TMP"/d
			dd if=a of=e bs=512k conv=fdatasync oflag=append status=none; cmp e a
			dd if=/dev/zero of=f bs=1 count=0 seek=5000000 status=none; [ "$(stat -c %s f)" = 5000000 ]`},
		{name: "git", needs: []string{"git"}, script: `
			git config --global user.name t; git config --global user.email t@example.org; git config --global gc.auto 0
			git init -q "$TMP"/repo
			cp -r "$SRC"/. "$TMP"/repo/; rmdir "$TMP"/repo/empty; (cd "$TMP"/repo; git add -A; git commit -qm one; echo more >>text; git commit -qam two)
			git clone -q "$TMP"/repo clone; cd clone; git fsck --strict --full; [ -z "$(git status --porcelain)" ]
			diff -r --no-dereference --exclude .git "$TMP"/repo .
			seq 1000 >numbers; git add numbers; git commit -qm three; git gc -q --prune=now; git fsck --full
			git checkout -q HEAD~1; [ ! -e numbers ]; git checkout -q -; [ "$(wc -l <numbers)" = 1000 ]
			git push -q "$TMP"/repo HEAD:other; git clone -q . "$OTHER"/second; git -C "$OTHER"/second fsck --full`},
		{name: "sqlite", needs: []string{"sqlite3"}, script: `
			for mode in delete truncate persist wal; do
				sqlite3 $mode.db "pragma journal_mode=$mode; create table t(id integer primary key, a text, b blob);" >/dev/null
				sqlite3 $mode.db "pragma mmap_size=1000000; with recursive n(i) as (select 1 union all select i+1 from n where i<3000)
					insert into t select i, 'text '||i, randomblob(i%300) from n; create index x on t(a);" >/dev/null
				sqlite3 $mode.db "begin; update t set a=a||'!' where id%3=0; delete from t where id%5=0; commit;
					begin; delete from t; rollback;"
				sqlite3 $mode.db "vacuum; pragma wal_checkpoint(truncate);" >/dev/null
				[ "$(sqlite3 $mode.db 'pragma integrity_check; select count(*) from t; select a from t where id=3' | tr '\n' ' ')" = "ok 2400 text 3! " ]
			done
			for i in 1 2 3 4; do (for j in $(seq 15); do sqlite3 -cmd '.timeout 20000' wal.db "insert into t(a) values('w$i')"; done) & done; wait
			[ "$(sqlite3 wal.db "select count(*) from t where a like 'w%'; pragma integrity_check" | tr '\n' ' ')" = "60 ok " ]`},
		{name: "checksums", script: `
			cp "$SRC"/* . 2>/dev/null || true
			(cd "$SRC"; sha256sum big odd page one nothing text) >sums; sha256sum -c --quiet sums; md5sum big >/dev/null
			[ "$(wc -c <big)" = "$(wc -c <"$SRC"/big)" ]; cmp big "$SRC"/big
			[ "$(tail -c 100 big | md5sum)" = "$(tail -c 100 "$SRC"/big | md5sum)" ]
			[ "$(head -c 70000 big | md5sum)" = "$(head -c 70000 "$SRC"/big | md5sum)" ]`},
		{name: "truncate", script: `
			cp "$SRC"/big a; truncate -s 1000 a; cmp a <(head -c 1000 "$SRC"/big)
			truncate -s 5000 a; cmp a <(head -c 1000 "$SRC"/big; head -c 4000 /dev/zero)
			truncate -s +10 a; [ "$(stat -c %s a)" = 5010 ]
			truncate -s 5G b; [ "$(stat -c %s b)" = 5368709120 ]; printf end | dd of=b bs=1 seek=5368709120 conv=notrunc status=none
			[ "$(tail -c 3 b)" = end ]`},
		{name: "shred", needs: []string{"shred"}, script: `
			cp "$SRC"/odd a; shred -n 2 a; no cmp -s a "$SRC"/odd; [ "$(stat -c %s a)" -ge 70001 ]
			shred -z -n 1 a; cmp -n 70001 a /dev/zero; shred -u a; [ ! -e a ]`},
		{name: "find", needs: []string{"find"}, script: `
			cp -a "$SRC" tree
			[ "$(cd tree; find . | sort)" = "$(cd "$SRC"; find . | sort)" ]
			[ "$(cd tree; find . -type f -size +100k -printf '%p %s %n\n' | sort)" = "$(cd "$SRC"; find . -type f -size +100k -printf '%p %s %n\n' | sort)" ]
			[ "$(find tree -samefile tree/odd | wc -l)" = 2 ]; [ "$(find tree -perm -4000)" = tree/one ]
			touch -d '2001-01-01' old; [ -z "$(find . -maxdepth 1 -name old -newer tree/big)" ]
			find tree -type f -delete; [ -z "$(find tree -type f)" ]`},
		{name: "du", script: `
			cp "$SRC"/big a; [ "$(du --block-size=1 a | cut -f1)" -ge 3145733 ]; [ "$(du --block-size=1 a | cut -f1)" -lt 8000000 ]
			: >b; fallocate -n -l 8388608 b; [ "$(stat -c %s b)" = 0 ]; [ "$(du --block-size=1 b | cut -f1)" -ge 8388608 ]
			[ "$(du -b a | cut -f1)" = 3145733 ]
			before=$(df --output=used -B1 . | tail -1); cp a c; sync c; [ "$(df --output=used -B1 . | tail -1)" -gt "$before" ]`},
		{name: "ls", script: `
			cp -a "$SRC"/. .
			[ "$(ls -ln --time-style=+%s.%N big | cut -d' ' -f1,2,5,6)" = "$(ls -ln --time-style=+%s.%N "$SRC"/big | cut -d' ' -f1,2,5,6)" ]
			[ "$(ls -A)" = "$(ls -A "$SRC")" ]; ls -laR >/dev/null; [ "$(readlink dangling)" = nowhere ]`},
		{name: "editing", script: `
			cp "$SRC"/text a; sed -i 's/word/verb/g' a; no grep -q word a; grep -c verb a
			sort -o a a; sort -c a; gzip a; zcat a.gz | sort -c; gunzip a.gz
			split -b 1000 "$SRC"/odd part-; cat part-* | cmp - "$SRC"/odd
			echo one >log; echo two >>log; echo three | tee -a log >/dev/null; [ "$(cat log | tr '\n' ' ')" = "one two three " ]
			install -m 600 -D log d/e/log; [ "$(stat -c %a d/e/log)" = 600 ]
			printf '%s\n' '--- log' '+++ log' '@@ -1,3 +1,3 @@' '-one' '+ONE' ' two' ' three' >p; if command -v patch >/dev/null; then patch -s log p; head -1 log | grep -qx ONE; fi`},
		{name: "exec", script: `
			cp "$(type -P true)" t; ./t; printf '#!/bin/sh\necho ran\n' >s; chmod +x s; [ "$(./s)" = ran ]
			cp t u; rm t; ./u; chmod -x u; no ./u`},
		{name: "flock", needs: []string{"flock"}, script: `
			echo 0 >n
			for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5; do flock lock -c 'echo $(($(cat n) + 1)) >n'; done) & done; wait
			[ "$(cat n)" = 40 ]; flock lock -c '! flock -n lock -c true'`},
		{name: "python", bulk: true, needs: []string{"python3"}, script: pythonScript},
	}
}

// pythonScript copies with shutil and maps with mmap.
const pythonScript = `
	cat >"$TMP"/t.py <<-'END'
	import filecmp, mmap, os, shutil, subprocess, sys
	src, tmp, other = (os.environ[n] for n in ("SRC", "TMP", "OTHER"))
	def same(a, b):
	    c = filecmp.dircmp(a, b)
	    assert not (c.left_only or c.right_only or c.funny_files), (c.left_only, c.right_only)
	    m = filecmp.cmpfiles(a, b, c.common_files, shallow=False)
	    assert not m[1] and not m[2], m
	    for d in c.common_dirs: same(os.path.join(a, d), os.path.join(b, d))
	shutil.copytree(src, "tree", symlinks=True); same(src, "tree")
	shutil.copytree("tree", other + "/tree", symlinks=True); same(src, other + "/tree")
	shutil.copy2(src + "/big", "big"); assert os.stat("big").st_mtime_ns == os.stat(src + "/big").st_mtime_ns
	shutil.move("big", other + "/big"); shutil.move(other + "/big", "big")
	want = bytearray(open(src + "/big", "rb").read()); assert open("big", "rb").read() == want
	seen = lambda: subprocess.run(["cat", "big"], capture_output=True, check=True).stdout
	with open("big", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
	    assert m[:] == want
	    for at in (0, 4095, 1 << 20, len(want) - 9):
	        m[at:at + 9] = want[at:at + 9] = b"123456789"
	    m.flush(); assert seen() == want
	    f.seek(4096); f.write(b"behind the map"); f.flush(); want[4096:4110] = b"behind the map"
	    assert m[:] == want
	with open("big", "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
	    m[0:5] = b"mine!"; assert seen() == want
	fd = os.open("cfr", os.O_RDWR | os.O_CREAT)
	with open("big", "rb") as f:
	    while os.copy_file_range(f.fileno(), fd, 1 << 20): pass
	assert os.pread(fd, len(want) + 1, 0) == want
	os.posix_fallocate(fd, 0, 1 << 22); assert os.fstat(fd).st_size == 1 << 22
	assert os.preadv(fd, [bytearray(10), bytearray(7)], 3) == 17 and os.sendfile(fd, fd, 0, 0) == 0
	os.setxattr("cfr", "user.a", b"x"); assert os.getxattr("cfr", "user.a") == b"x"
	shutil.rmtree("tree"); shutil.rmtree(other + "/tree"); assert not os.path.exists("tree")
	END
	python3 "$TMP"/t.py`

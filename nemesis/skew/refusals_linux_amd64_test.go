package skew

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// nobody is a user without rights.
const nobody = 65534

// result runs a role of the test's binary through another program, if any, and
// returns the first word that it prints.
func result(t *testing.T, as int, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if as != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(as), Gid: uint32(as)}}
		cmd.Dir = programs
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out.Bytes())
	}
	t.Log(strings.TrimSpace(out.String()))
	word, _, _ := strings.Cut(out.String(), " ")
	return word
}

// copied copies a program to where everybody finds it, with other rights.
func copied(t *testing.T, path, name string, mode os.FileMode) string {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out := filepath.Join(programs, name)
	f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(out) })
	if _, err := io.Copy(f, in); err != nil {
		t.Fatal(err)
	}
	// Closed before the mode, so that it is no longer open for writing when it is
	// executed.
	if err := errors.Join(f.Close(), os.Chmod(out, mode)); err != nil {
		t.Fatal(err)
	}
	return out
}

// asNobody gives the user to test as: nobody if that can be had.
func asNobody(t *testing.T) (uid int, self string) {
	t.Helper()
	if os.Getuid() != 0 {
		return os.Getuid(), ownProgram
	}
	return nobody, copied(t, ownProgram, "self", 0o755)
}

func TestOrdinaryUser(t *testing.T) {
	uid, self := asNobody(t)
	if w := result(t, uid, self, roleLaunch, staticGo(t)); w != "ok" {
		t.Errorf("%s, want ok", w)
	}
}

// TestInNamespaces is how the lab starts servers: an ordinary user, root in a
// user namespace, with a network namespace of its own.
func TestInNamespaces(t *testing.T) {
	uid, self := asNobody(t)
	unshare := need(t, "unshare")
	if err := exec.Command(unshare, "-Urn", "true").Run(); err != nil {
		t.Skipf("user namespaces are not permitted here: %v", err)
	}
	for _, args := range [][]string{
		{"-Urn"},
		{"-Urn", "--mount", "--pid", "--fork", "--mount-proc"},
		{"-Urn", "--time", "--fork", "--monotonic", "1000000"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			argv := append(append([]string{unshare}, args...), self, roleLaunch, staticGo(t))
			if w := result(t, uid, argv...); w != "ok" {
				t.Errorf("%s, want ok", w)
			}
		})
	}
}

func TestUnreadableProgram(t *testing.T) {
	uid, self := asNobody(t)
	path := copied(t, staticGo(t), "unreadable", 0o111)
	if w := result(t, uid, self, roleLaunch, path); w != "ErrUnreadable" {
		t.Errorf("%s, want ErrUnreadable", w)
	}
}

func TestUnderStrace(t *testing.T) {
	strace := need(t, "strace")
	if err := exec.Command(strace, "-o", os.DevNull, "true").Run(); err != nil {
		t.Skipf("strace does not work here: %v", err)
	}
	argv := []string{strace, "-f", "-o", os.DevNull, ownProgram, roleLaunch, staticGo(t)}
	argv[4], _ = os.Readlink(ownProgram)
	if w := result(t, os.Getuid(), argv...); w != "ErrPtrace" {
		t.Errorf("%s, want ErrPtrace", w)
	}
}

func TestPtraceFiltered(t *testing.T) {
	for _, role := range []string{roleNoPtrace, roleKillsDead} {
		if w := result(t, os.Getuid(), ownProgram, role, staticGo(t)); w != "ErrPtrace" {
			t.Errorf("%s: %s, want ErrPtrace", role, w)
		}
	}
}

// TestOtherRefusalsAreNotPtrace: what cannot be started for another reason keeps
// its own error.
func TestOtherRefusalsAreNotPtrace(t *testing.T) {
	c := control(t)
	file := copied(t, "/bin/true", "no-program", 0o644)
	for path, want := range map[string]error{file: unix.EACCES, file + "-not-there": unix.ENOENT} {
		cmd := exec.Command(path)
		if err := Launch(cmd, c, Options{}); !errors.Is(err, want) || errors.Is(err, ErrPtrace) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		dead(t, cmd)
	}
}

// Test32Bit writes the smallest program of that kind: exit(0).
func Test32Bit(t *testing.T) {
	const base, headers = 0x08048000, 52 + 32
	text := []byte{0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80}
	size := uint32(headers + len(text))
	var b bytes.Buffer
	for _, v := range []any{
		elf.Header32{
			Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_386), Version: uint32(elf.EV_CURRENT),
			Entry: base + headers, Phoff: 52, Ehsize: 52, Phentsize: 32, Phnum: 1,
		},
		elf.Prog32{Type: uint32(elf.PT_LOAD), Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Flags: uint32(elf.PF_R | elf.PF_X), Align: pageSize},
		text,
	} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(path, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(path).Run(); err != nil {
		t.Skipf("this kernel does not run 32-bit programs: %v", err)
	}
	cmd := exec.Command(path)
	if err := Launch(cmd, control(t), Options{}); !errors.Is(err, ErrNot64Bit) {
		t.Errorf("%v, want ErrNot64Bit", err)
	}
	dead(t, cmd)
}

// TestNoVDSO hides the vDSO from the auxiliary vector of a process.
func TestNoVDSO(t *testing.T) {
	err := control(t).witness(func(p *patched) error {
		for at := p.registers.Rsp; ; at += 8 {
			if v, err := p.t.word(at); err != nil {
				return err
			} else if v == p.vdso {
				const ignore = 1 // AT_IGNORE
				if err := p.t.setWord(at-8, ignore); err != nil {
					return err
				}
				break
			}
		}
		again := &patched{t: p.t, descriptor: p.descriptor}
		if err := again.patch(code, true); !errors.Is(err, ErrNoVDSO) {
			t.Errorf("%v, want ErrNoVDSO", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

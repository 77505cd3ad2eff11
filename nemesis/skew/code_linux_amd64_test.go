package skew

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestCodeIsFromItsSource assembles the source anew.
func TestCodeIsFromItsSource(t *testing.T) {
	need(t, "cc")
	need(t, "objcopy")
	dir := t.TempDir()
	obj, bin := filepath.Join(dir, "o"), filepath.Join(dir, "bin")
	for _, args := range [][]string{
		{"cc", "-c", "-o", obj, "asm/clock_amd64.S"},
		{"objcopy", "-O", "binary", "-j", ".text", obj, bin},
	} {
		if b, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, b)
		}
	}
	want, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(code, want) {
		t.Error("code_linux_amd64.go is not what asm/clock_amd64.S assembles to: run go generate")
	}
}

// mutantLimit is how long a mutant may hang. It is killed then, as it should.
const mutantLimit = time.Second

// launchMutant does with other code all that a launch does but let it go.
func launchMutant(t *testing.T, mutant []byte) error {
	t.Helper()
	c := control(t)
	l := launch{
		cmd: exec.Command(ownProgram), control: c, code: mutant,
		options: Options{Limit: mutantLimit},
		instead: func(*patched) error { return nil },
	}
	err := l.run()
	dead(t, l.cmd)
	return err
}

// TestBrokenCodeIsNotLetGo: the mechanism disabled in one way or another is an
// error, and the target is dead.
func TestBrokenCodeIsNotLetGo(t *testing.T) {
	replace := func(old, new []byte) []byte {
		t.Helper()
		if n := bytes.Count(code, old); n != 1 {
			t.Fatalf("% x is %d times in the code", old, n)
		}
		return bytes.Replace(code, old, new, 1)
	}
	at := func(i int, b ...byte) []byte {
		m := slices.Clone(code)
		copy(m[i:], b)
		return m
	}
	// jmp *wordClockGettime(%rip), to the kernel's own function
	disp := int32(wordClockGettime - entryClockGettime - 6)
	jump := binary.LittleEndian.AppendUint32([]byte{0xff, 0x25}, uint32(disp))
	for name, mutant := range map[string][]byte{
		"no skew at all":        at(entryClockGettime, jump...),
		"returns at once":       at(entryClockGettime, 0xc3),
		"time returns at once":  at(entryTime, 0xc3),
		"gettimeofday too":      at(entryGettimeofday, 0xc3),
		"illegal instruction":   at(entryClockGettime, 0x0f, 0x0b),
		"no memory":             at(entryClockGettime, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0),
		"for ever":              at(entryClockGettime, 0xeb, 0xfe),
		"offset taken away":     replace([]byte{0x4c, 0x01, 0xc8}, []byte{0x4c, 0x29, 0xc8}),
		"other rate":            replace([]byte{0x4d, 0x0f, 0x4c, 0xda}, []byte{0x4d, 0x0f, 0x4d, 0xda}),
		"other fraction":        replace([]byte{0x48, 0x0f, 0xac, 0xd0, 0x20}, []byte{0x48, 0x0f, 0xac, 0xd0, 0x1f}),
		"CLOCK_TAI unmoved":     replace([]byte{0xb9, 0x21, 0x09, 0, 0}, []byte{0xb9, 0x21, 0x01, 0, 0}),
		"CPU time moved":        replace([]byte{0xb9, 0xd2, 0x02, 0, 0}, []byte{0xb9, 0xda, 0x02, 0, 0}),
		"rbx is not given back": replace([]byte{0x41, 0x5c, 0x5b, 0x5d}, []byte{0x41, 0x5c, 0x59, 0x5d}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := launchMutant(t, mutant); !errors.Is(err, ErrSelfTest) {
				t.Errorf("%v, want ErrSelfTest", err)
			}
		})
	}
}

// TestMutants flips bits of the code and counts what the self-test lets through:
// what does not change anything that a program can see, such as padding and the
// second form of an instruction, and what shows in a race only. Before the test
// page had a generation of its own, mutants passed that hung on the live one.
func TestMutants(t *testing.T) {
	stride := mutantStride
	if !*soak {
		stride *= 5
	}
	var all, passed int
	for i := range code {
		if !executed(i) {
			continue
		}
		for bit := range 8 {
			if (i*8+bit)%stride != 0 {
				continue
			}
			m := slices.Clone(code)
			m[i] ^= 1 << bit
			all++
			if launchMutant(t, m) == nil {
				passed++
				t.Logf("bit %d of the byte at %#x", bit, i)
			}
		}
	}
	t.Logf("%d of %d mutants were let go", passed, all)
	if passed*4 > all {
		t.Error("that is more than padding and hints can explain")
	}
}

// executed is false for what lies before, between and behind the functions.
func executed(i int) bool {
	for _, f := range [][2]int{{entryClockGettime, entryGettimeofday}, {entryGettimeofday, entryTime}, {entryTime, trap}} {
		if i >= f[0] && i < f[1] {
			ret := bytes.LastIndexByte(code[f[0]:f[1]], 0xc3)
			return i <= f[0]+ret
		}
	}
	return false
}

const mutantStride = 29 // a prime, so that every bit has its turn

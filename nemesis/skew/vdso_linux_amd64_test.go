package skew

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"testing"
)

// ownVDSO is the vDSO of this process, as the kernel made it.
func ownVDSO(t testing.TB) []byte {
	t.Helper()
	ms, err := mappings(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	m, err := openMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer m.file.Close()
	head, err := m.read(vdsoIn(ms), pageSize)
	if err != nil {
		t.Fatal(err)
	}
	size, err := vdsoSize(head)
	if err != nil {
		t.Fatal(err)
	}
	// To the end of the page, where the section headers are.
	b, err := m.read(vdsoIn(ms), int(size+pageSize-1)&^(pageSize-1))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestParseVDSO compares with the standard library, which needs the section
// headers that a vDSO may lack.
func TestParseVDSO(t *testing.T) {
	b := ownVDSO(t)
	v, err := parseVDSO(b)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	want, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	defined := 0
	for _, w := range want {
		if w.Section == elf.SHN_UNDEF {
			continue
		}
		defined++
		s, ok := v.find(w.Name)
		if !ok || s.value+v.bias != w.Value {
			t.Errorf("%s: found %v with value %#x, want %#x", w.Name, ok, s.value+v.bias, w.Value)
		}
		if got := binary.LittleEndian.Uint64(b[s.field:]); got != w.Value {
			t.Errorf("%s: the field at %#x holds %#x", w.Name, s.field, got)
		}
	}
	if len(v.symbols) != defined || defined == 0 {
		t.Errorf("%d symbols, want %d", len(v.symbols), defined)
	}
	if v.syscall == 0 || b[v.syscall] != 0x0f || b[v.syscall+1] != 0x05 {
		t.Errorf("no system call at %#x", v.syscall)
	}
}

// TestParseVDSOWithOneHashTable hides one or the other, as kernels do.
func TestParseVDSOWithOneHashTable(t *testing.T) {
	all, err := parseVDSO(ownVDSO(t))
	if err != nil {
		t.Fatal(err)
	}
	have := 0
	for _, keep := range []elf.DynTag{elf.DT_HASH, elf.DT_GNU_HASH} {
		b := ownVDSO(t)
		if !hideHashes(b, keep) {
			continue
		}
		have++
		v, err := parseVDSO(b)
		if err != nil {
			t.Fatalf("%v: %v", keep, err)
		}
		if len(v.symbols) != len(all.symbols) {
			t.Errorf("%v: %d symbols, want %d", keep, len(v.symbols), len(all.symbols))
		}
	}
	if have == 0 {
		t.Error("no hash table")
	}
	b := ownVDSO(t)
	hideHashes(b, elf.DT_NULL)
	if _, err := parseVDSO(b); err == nil {
		t.Error("symbols without a hash table were counted")
	}
}

// hideHashes renames the tags of all hash tables but one, and says whether that
// one is there.
func hideHashes(b []byte, keep elf.DynTag) (found bool) {
	ps, err := programHeaders(b)
	if err != nil {
		return false
	}
	for _, p := range ps {
		if elf.ProgType(p.Type) != elf.PT_DYNAMIC {
			continue
		}
		for at := p.Off; at < p.Off+p.Filesz; at += 16 {
			switch tag := elf.DynTag(binary.LittleEndian.Uint64(b[at:])); tag {
			case keep:
				found = true
			case elf.DT_HASH, elf.DT_GNU_HASH:
				binary.LittleEndian.PutUint64(b[at:], uint64(elf.DT_DEBUG))
			}
		}
	}
	return found
}

// FuzzParseVDSO wants an answer or an error: what is read belongs to somebody
// else's process.
func FuzzParseVDSO(f *testing.F) {
	own := ownVDSO(f)
	f.Add(own)
	f.Add(own[:200])
	hideHashes(own, elf.DT_GNU_HASH)
	f.Add(own)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := vdsoSize(b); err != nil {
			return
		}
		if v, err := parseVDSO(b); err == nil {
			for _, s := range v.symbols {
				if s.field+8 > uint64(len(b)) {
					t.Errorf("a symbol outside: %#x of %#x", s.field, len(b))
				}
			}
		}
	})
}

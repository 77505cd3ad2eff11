package skew

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// entries are the functions of the vDSO that tell the time, under both of their
// names, and where in the code each is to lead. The others (getcpu, clock_getres,
// getrandom) stay as they are.
var entries = map[string]uint64{
	"__vdso_clock_gettime": entryClockGettime, "clock_gettime": entryClockGettime,
	"__vdso_gettimeofday": entryGettimeofday, "gettimeofday": entryGettimeofday,
	"__vdso_time": entryTime, "time": entryTime,
}

// A vdsoSymbol is a defined symbol of a vDSO. All numbers count from the start of
// the image in memory, modulo 2^64: once repointed, a value lies outside.
type vdsoSymbol struct {
	name  string
	value uint64
	field uint64 // where the value stands
}

// A vdsoImage is what the kernel maps, as far as it matters here.
type vdsoImage struct {
	bias    uint64 // address of the start, as the image itself counts
	symbols []vdsoSymbol
	syscall uint64 // where there is a syscall instruction; 0 if nowhere
}

// find gives the first symbol of that name.
func (v *vdsoImage) find(name string) (vdsoSymbol, bool) {
	for _, s := range v.symbols {
		if s.name == name {
			return s, true
		}
	}
	return vdsoSymbol{}, false
}

const (
	elfHeaderSize = 64
	vdsoLimit     = 1 << 20 // they have some kilobytes
	symbolSize    = 24
)

// vdsoSize reads from the headers at the start of an image how long it is.
func vdsoSize(head []byte) (uint64, error) {
	ps, err := programHeaders(head)
	if err != nil {
		return 0, err
	}
	size := uint64(0)
	for _, p := range ps {
		if p.Type == uint32(elf.PT_LOAD) {
			size = max(size, p.Off+p.Filesz)
		}
	}
	if size < elfHeaderSize || size > vdsoLimit {
		return 0, fmt.Errorf("a vDSO of %d bytes is not understood", size)
	}
	return size, nil
}

// programHeaders decodes them from the first page, where they are in every vDSO.
func programHeaders(b []byte) ([]elf.Prog64, error) {
	var h elf.Header64
	if err := decode(b, 0, &h); err != nil {
		return nil, err
	}
	if string(h.Ident[:4]) != elf.ELFMAG || h.Ident[elf.EI_CLASS] != byte(elf.ELFCLASS64) || h.Machine != uint16(elf.EM_X86_64) {
		return nil, fmt.Errorf("its vDSO is for another machine: %w", ErrNot64Bit)
	}
	ps := make([]elf.Prog64, h.Phnum)
	for i := range ps {
		if err := decode(b, h.Phoff+uint64(i)*uint64(h.Phentsize), &ps[i]); err != nil {
			return nil, err
		}
	}
	return ps, nil
}

// decode reads v at an offset that the image itself has given.
func decode(b []byte, at uint64, v any) error {
	if at > uint64(len(b)) {
		return fmt.Errorf("malformed vDSO: it refers to offset %#x of %#x", at, len(b))
	}
	if _, err := binary.Decode(b[at:], binary.LittleEndian, v); err != nil {
		return fmt.Errorf("malformed vDSO at offset %#x: %w", at, err)
	}
	return nil
}

// parseVDSO reads the symbols of an image as it lies in memory.
func parseVDSO(b []byte) (*vdsoImage, error) {
	ps, err := programHeaders(b)
	if err != nil {
		return nil, err
	}
	v := &vdsoImage{}
	var dyn uint64
	loaded := false
	for _, p := range ps {
		switch elf.ProgType(p.Type) {
		case elf.PT_LOAD:
			if !loaded {
				loaded, v.bias = true, p.Vaddr-p.Off
			}
		case elf.PT_DYNAMIC:
			dyn = p.Off
		}
	}
	tags, err := dynamicTags(b, dyn)
	if err != nil {
		return nil, err
	}
	at := func(t elf.DynTag) uint64 { return tags[t] - v.bias }
	if tags[elf.DT_SYMTAB] == 0 || tags[elf.DT_STRTAB] == 0 {
		return nil, fmt.Errorf("it has no symbol table: %w", ErrNoVDSO)
	}
	n, err := symbolCount(b, tags, at)
	if err != nil {
		return nil, err
	}
	for i := range n {
		if err := v.addSymbol(b, at(elf.DT_SYMTAB)+i*symbolSize, at(elf.DT_STRTAB)); err != nil {
			return nil, err
		}
	}
	v.syscall = uint64(max(0, bytes.Index(b, []byte{0x0f, 0x05})))
	return v, nil
}

func dynamicTags(b []byte, at uint64) (map[elf.DynTag]uint64, error) {
	tags := map[elf.DynTag]uint64{}
	if at == 0 {
		return tags, nil
	}
	for ; ; at += 16 {
		var d elf.Dyn64
		if err := decode(b, at, &d); err != nil {
			return nil, err
		}
		if elf.DynTag(d.Tag) == elf.DT_NULL {
			return tags, nil
		}
		tags[elf.DynTag(d.Tag)] = d.Val
	}
}

// symbolCount finds the length of the symbol table in one of its hash tables:
// nothing else tells it, and newer kernels have the GNU form alone.
func symbolCount(b []byte, tags map[elf.DynTag]uint64, at func(elf.DynTag) uint64) (uint64, error) {
	word := func(off uint64) (uint64, error) {
		var w uint32
		err := decode(b, off, &w)
		return uint64(w), err
	}
	limit := uint64(len(b) / symbolSize)
	if tags[elf.DT_HASH] != 0 {
		n, err := word(at(elf.DT_HASH) + 4)
		if err == nil && n > limit {
			err = fmt.Errorf("malformed vDSO: %d symbols in %d bytes", n, len(b))
		}
		return n, err
	}
	if tags[elf.DT_GNU_HASH] == 0 {
		return 0, fmt.Errorf("it has no hash table: %w", ErrNoVDSO)
	}
	var h struct{ Buckets, First, Bloom, Shift uint32 }
	start := at(elf.DT_GNU_HASH)
	if err := decode(b, start, &h); err != nil {
		return 0, err
	}
	buckets := start + 16 + 8*uint64(h.Bloom)
	last := uint64(0)
	for i := range uint64(h.Buckets) {
		w, err := word(buckets + 4*i)
		if err != nil {
			return 0, err
		}
		last = max(last, w)
	}
	if last < uint64(h.First) {
		return uint64(h.First), nil // none is hashed
	}
	// The chain of the last bucket ends with an odd word.
	chains := buckets + 4*uint64(h.Buckets)
	for ; last < limit; last++ {
		w, err := word(chains + 4*(last-uint64(h.First)))
		if err != nil {
			return 0, err
		}
		if w&1 == 1 {
			return last + 1, nil
		}
	}
	return 0, fmt.Errorf("malformed vDSO: more than %d symbols in %d bytes", limit, len(b))
}

// addSymbol takes up the symbol at an offset if it is defined.
func (v *vdsoImage) addSymbol(b []byte, at, names uint64) error {
	var s elf.Sym64
	if err := decode(b, at, &s); err != nil {
		return err
	}
	if s.Shndx == uint16(elf.SHN_UNDEF) {
		return nil
	}
	start := names + uint64(s.Name)
	if start > uint64(len(b)) {
		return fmt.Errorf("malformed vDSO: a name at offset %#x", start)
	}
	name, _, ok := bytes.Cut(b[start:], []byte{0})
	if !ok {
		return fmt.Errorf("malformed vDSO: a name without end at offset %#x", start)
	}
	v.symbols = append(v.symbols, vdsoSymbol{name: string(name), value: s.Value - v.bias, field: at + 8})
	return nil
}

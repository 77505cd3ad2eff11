// Package adapters holds the locks of other languages: programs that speak the
// worker protocol (docs/protocol.md) and carry a library as it is published. The
// Python ones are part of lockcheck and are written out where they are to run;
// the Java one is built by "make adapters".
package adapters

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed python/*.py python/article/*.py
var files embed.FS

// Interpreter is Debian's Python, which has the modules of Debian's packages; a
// python3 on the PATH may be another one without them.
const Interpreter = "/usr/bin/python3"

const (
	modules = "/usr/lib/python3/dist-packages" // where Debian's packages put Python modules
	jars    = "/usr/share/java"
	// Jar is what "make adapters" builds.
	Jar = "curator-adapter.jar"
)

// A Program is one adapter.
type Program struct {
	Script string // below python/; or
	Class  string // in Jar
	Needs  []Need
}

// A Need is a file that an adapter cannot do without, and what brings it.
type Need struct{ File, Remedy string }

// Module is the need for a Python module, given by the name that it is imported
// under.
func Module(name, pkg string) Need {
	return Need{filepath.Join(modules, name), "apt-get install " + pkg}
}

// Library is the need for a jar file.
func Library(name, pkg string) Need { return Need{filepath.Join(jars, name), "apt-get install " + pkg} }

// Missing says what this machine lacks for the adapter, and what brings it.
func (p Program) Missing() error {
	needs := p.Needs
	if p.Script != "" {
		needs = append([]Need{{Interpreter, "apt-get install python3"}}, needs...)
	}
	var missing []error
	for _, n := range needs {
		if _, err := os.Stat(n.File); err != nil {
			missing = append(missing, fmt.Errorf("%s is missing: %s", n.File, n.Remedy))
		}
	}
	if p.Class != "" {
		if _, err := exec.LookPath("java"); err != nil {
			missing = append(missing, errors.New("java is missing: apt-get install default-jre-headless"))
		}
		if _, err := findJar(); err != nil {
			missing = append(missing, err)
		}
	}
	return errors.Join(missing...)
}

// Command writes the adapter into dir, where it stays as evidence of what was
// run, and gives the program and arguments that start it.
func (p Program) Command(dir string) ([]string, error) {
	if err := p.Missing(); err != nil {
		return nil, err
	}
	if p.Class == "" {
		if err := unpack(dir); err != nil {
			return nil, fmt.Errorf("write the adapters: %w", err)
		}
		// The module is found from where the script lies; no byte code is left there.
		return []string{Interpreter, "-B", filepath.Join(dir, filepath.FromSlash(p.Script))}, nil
	}
	jar, err := findJar()
	if err != nil {
		return nil, err
	}
	path := []string{jar}
	for _, n := range p.Needs {
		if filepath.Ext(n.File) == ".jar" {
			path = append(path, n.File)
		}
	}
	// Small and quick to start: several of these share a machine with the servers.
	return []string{"java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", strings.Join(path, ":"), p.Class}, nil
}

// unpack writes the Python files into dir.
func unpack(dir string) error {
	python, err := fs.Sub(files, "python")
	if err != nil {
		return err
	}
	return fs.WalkDir(python, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := fs.ReadFile(python, name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	})
}

// findJar looks beside lockcheck, in bin and on the PATH.
func findJar() (string, error) {
	var dirs []string
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(exe))
	}
	for _, d := range append(append(dirs, "bin"), filepath.SplitList(os.Getenv("PATH"))...) {
		p, err := filepath.Abs(filepath.Join(d, Jar))
		if err != nil {
			continue
		}
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is missing: make adapters", Jar)
}

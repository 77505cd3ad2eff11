package adapters

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// A dialogue is a talk with a worker in Python.
type dialogue struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

func begin(t *testing.T) *dialogue {
	t.Helper()
	script, err := filepath.Abs("testdata/scripted.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(Interpreter, "-B", script, mustAbs(t, "python"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the worker ended with %v when its input ended", err)
		}
	})
	return &dialogue{t, in, bufio.NewScanner(out)}
}

func mustAbs(t *testing.T, name string) string {
	t.Helper()
	p, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (d *dialogue) say(format string, args ...any) {
	d.t.Helper()
	if _, err := fmt.Fprintf(d.in, format+"\n", args...); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dialogue) hear(want string) {
	d.t.Helper()
	if !d.out.Scan() {
		d.t.Fatalf("the worker said nothing, want %s", want)
	}
	var got, wanted map[string]any
	if err := json.Unmarshal(d.out.Bytes(), &got); err != nil {
		d.t.Fatalf("%q: %v", d.out.Text(), err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		d.t.Fatal(err)
	}
	if !reflect.DeepEqual(got, wanted) {
		d.t.Fatalf("the worker said %s, want %s", d.out.Text(), want)
	}
}

func (d *dialogue) init(id, process int) {
	d.t.Helper()
	d.say(`{"id":%d,"op":"init","init":{"protocol":1,"worker":0,"process":%d,"backend":"x","client":"x","endpoints":["[::1]:1"],"store":"http://127.0.0.1:1","ttl":1000000000,"retry_delay":1,"seed":1}}`, id, process)
}

// What a lock returns and raises becomes what docs/protocol.md asks for.
func TestLockworker(t *testing.T) {
	d := begin(t)
	d.say(`{"id":1,"op":"acquire","key":"k","grant":1,"timeout":1}`)
	d.hear(`{"id":1,"type":"fail","error":"no session: init comes first"}`)
	d.init(2, 0)
	d.hear(`{"id":2,"type":"ok","can":[]}`)
	d.hear(`{"event":"connected"}`) // told while the lock was made, and not before the answer

	acquire := func(id int, key string) {
		d.say(`{"id":%d,"op":"acquire","key":%q,"grant":%d,"timeout":60000000000}`, id, key, id)
	}
	acquire(3, "free")
	d.hear(`{"event":"mark","mark":1,"key":"free","grant":3}`)
	d.say(`{"op":"ack","mark":1}`)
	d.hear(`{"id":3,"type":"ok","valid":5,"token":0,"mark":1}`)
	d.say(`{"id":4,"op":"release","key":"free","grant":3,"timeout":1000000000}`)
	d.hear(`{"id":4,"type":"fail","error":"not-held"}`)
	d.say(`{"id":5,"op":"release","key":"free","grant":3,"timeout":1000000000}`)
	d.hear(`{"id":5,"type":"fail","error":"no such grant in this session"}`)
	d.say(`{"id":6,"op":"write","key":"free","grant":3,"value":1,"timeout":1000000000}`)
	if !d.out.Scan() || !strings.Contains(d.out.Text(), `"fail"`) { // the store's port is closed
		t.Fatalf("a write that could not be sent: %s", d.out.Text())
	}
	for id, c := range map[int][2]string{
		7:  {"held", `"type":"fail","error":"held"`},
		8:  {"doubt", `"type":"info","error":"OSError('broken off')"`},
		9:  {"refused", `"type":"fail","error":"ConnectionRefusedError('nobody there')"`},
		10: {"over", `"type":"info","error":"nothing was left of the lease when the answer came"`},
	} {
		acquire(id, c[0])
		d.hear(fmt.Sprintf(`{"id":%d,%s}`, id, c[1]))
	}
	acquire(11, "lost-on-arrival")
	d.hear(`{"event":"lost"}`)
	d.hear(`{"id":11,"type":"info","error":"the session was lost before the answer could be given"}`)
}

// A session that was given up says nothing any more, whatever it still does.
func TestLockworkerForgets(t *testing.T) {
	d := begin(t)
	d.init(1, 0)
	d.hear(`{"id":1,"type":"ok","can":[]}`)
	d.hear(`{"event":"connected"}`)
	d.say(`{"id":2,"op":"acquire","key":"hang","grant":1,"timeout":1}`)
	d.init(3, 1)
	d.hear(`{"id":3,"type":"ok","can":[]}`)
	d.hear(`{"event":"connected"}`)
	d.say(`{"id":4,"op":"close","timeout":1000000000}`)
	d.hear(`{"id":4,"type":"ok"}`)
	d.hear(`{"id":2,"type":"fail","error":"the runner stamped no mark: nothing was sent"}`) // late, for nobody: and no "lost" before it
}

// Each adapter that is listed is there, and what it lacks is said with a remedy.
func TestPrograms(t *testing.T) {
	p := Program{Script: "redis_lock.py", Needs: []Need{{"/nonexistent/module", "apt-get install that"}}}
	if _, err := p.Command(t.TempDir()); err == nil || !strings.Contains(err.Error(), "apt-get install that") {
		t.Errorf("the error of a missing module is %v", err)
	}
	p.Needs = nil
	cmd, err := p.Command(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cmd[len(cmd)-1]); err != nil {
		t.Error(err)
	}
}

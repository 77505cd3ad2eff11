package matrix

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The examples for CI systems are YAML, and every one of them calls lockcheck.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../docs/examples/*.y*ml")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := yaml.Unmarshal(b, &doc); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		for _, key := range map[string][]string{"github-matrix.yml": {"jobs"}, "github-run.yml": {"jobs"}, "gitlab-ci.yml": {"lock", "shard", "whole"}, "kubernetes-job.yaml": {"apiVersion", "kind", "spec"}}[filepath.Base(f)] {
			if doc[key] == nil {
				t.Errorf("%s has no %s", f, key)
			}
		}
		if !strings.Contains(string(b), "lockcheck ") {
			t.Errorf("%s calls nothing", f)
		}
	}
	job, err := os.ReadFile("../docs/examples/kubernetes-job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		Kind string
		Spec struct {
			Completions    int
			CompletionMode string `yaml:"completionMode"`
		}
	}
	if err := yaml.Unmarshal(job, &k); err != nil || k.Kind != "Job" || k.Spec.CompletionMode != "Indexed" || !strings.Contains(string(job), "/16 ") || k.Spec.Completions != 16 {
		t.Errorf("%+v %v", k, err)
	}
}

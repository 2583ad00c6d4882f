package agent

import (
	"os"
	"path/filepath"
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestMembersFile checks the form of the members file, and that a new version replaces it at once: a reader that has
// opened the old one still reads it.
func TestMembersFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, membersFile)
	if err := writeMembers(path, &greylagv1.ElasticTask{Version: 1, Members: []string{"n1", "n2"}}); err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := writeMembers(path, &greylagv1.ElasticTask{Version: 2, Members: []string{"n1", "n3", "n4"}}); err != nil {
		t.Fatal(err)
	}
	before := make([]byte, 64)
	n, err := old.Read(before)
	if err != nil || string(before[:n]) != "1\nn1\nn2\n" {
		t.Errorf("the old version is %q: %v", before[:n], err)
	}
	now, err := os.ReadFile(path)
	if err != nil || string(now) != "2\nn1\nn3\nn4\n" {
		t.Errorf("the file is %q: %v", now, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("the directory has %v: %v", files, err)
	}
}

// TestNumberOfANode checks that the node of an elastic job keeps its number, in the environment and in file names.
func TestNumberOfANode(t *testing.T) {
	w := &greylagv1.WantedTask{Job: 7, Rank: 1, Elastic: &greylagv1.ElasticTask{Number: 5}}
	if got := expand("out-%n", w, "n1"); got != "out-5" {
		t.Errorf("expanded %q, want out-5", got)
	}
	if w.Elastic = nil; numberOf(w) != 1 {
		t.Errorf("number %d, want the rank", numberOf(w))
	}
}

package wire

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestVocabulary checks that each value of each enum has a word, and that the name of the value is
// that word.
func TestVocabulary(t *testing.T) {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
	}
	checked := 0
	for _, file := range []protoreflect.FileDescriptor{
		greylagv1.File_greylag_v1_account_proto, greylagv1.File_greylag_v1_acct_proto, greylagv1.File_greylag_v1_burst_proto, greylagv1.File_greylag_v1_cluster_proto,
		greylagv1.File_greylag_v1_credit_proto, greylagv1.File_greylag_v1_explain_proto, greylagv1.File_greylag_v1_job_proto,
		greylagv1.File_greylag_v1_node_proto, greylagv1.File_greylag_v1_report_proto, greylagv1.File_greylag_v1_topology_proto,
	} {
		for i := range file.Enums().Len() {
			enum := file.Enums().Get(i)
			checked++
			words := vocabulary[enum.Name()]
			if len(words) != enum.Values().Len() || words[0] != "" {
				t.Errorf("%s has %d values and the words %q", enum.Name(), enum.Values().Len(), words)
				continue
			}
			for n, word := range words[1:] {
				value := enum.Values().ByNumber(protoreflect.EnumNumber(n + 1))
				if value == nil || plain(string(value.Name())) != plain(string(enum.Name())+word) {
					t.Errorf("%s: value %d is %v, and its word is %q", enum.Name(), n+1, value, word)
				}
			}
		}
	}
	if checked != len(vocabulary) {
		t.Errorf("the API has %d enums, the vocabulary has %d", checked, len(vocabulary))
	}
}

func TestWord(t *testing.T) {
	if w := Word(greylagv1.JobState_JOB_STATE_OUT_OF_MEMORY); w != "OUT_OF_MEMORY" || Word(greylagv1.JobState(99)) != "99" || Word(greylagv1.Hold(0)) != "" {
		t.Errorf("got %q", w)
	}
	if e := Enum[greylagv1.Connect]("nvlink-node"); e != greylagv1.Connect_CONNECT_NVLINK_NODE || Enum[greylagv1.Connect]("far") != 0 {
		t.Errorf("got %v", e)
	}
}

func TestCheckEnums(t *testing.T) {
	good := &greylagv1.SubmitJobsRequest{Jobs: []*greylagv1.JobSpec{{Depends: []*greylagv1.Dependency{{Kind: greylagv1.DependencyKind_DEPENDENCY_KIND_AFTEROK}}}, {Request: &greylagv1.Request{Connect: 9}}}}
	if err := CheckEnums(good.ProtoReflect()); err == nil || err.Error() != "jobs[1].request.connect: 9 is not a Connect" {
		t.Errorf("got %v", err)
	}
	good.Jobs[1].Request.Connect = greylagv1.Connect_CONNECT_LEAF
	if err := CheckEnums(good.ProtoReflect()); err != nil {
		t.Error(err)
	}
}

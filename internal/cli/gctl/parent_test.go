package gctl

import (
	"testing"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// TestParentText: a MIG instance is shown with the GPU that it is a part of, in both forms.
func TestParentText(t *testing.T) {
	g := &greylagv1.GPU{Type: "1g.10gb", ParentType: "h100", Share: 8, Minor: 0}
	if got, want := parentText(g), ", 8/56 of the h100 /dev/nvidia0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if out := gpuOf(g, true); out.ParentMinor == nil || *out.ParentMinor != 0 || out.ParentType != "h100" || out.Share != 8 || !out.Used {
		t.Errorf("%+v", out)
	}
	whole := &greylagv1.GPU{Type: "h100", Minor: 3}
	if out := gpuOf(whole, false); parentText(whole) != "" || out.ParentMinor != nil {
		t.Errorf("%q, %+v", parentText(whole), out)
	}
}

package cluster_test

import (
	"fmt"

	"github.com/greylag/greylag/pkg/cluster"
)

// ExampleParseJobRef reads the references to jobs that users type.
func ExampleParseJobRef() {
	for _, word := range []string{"123", "123_4", "12x"} {
		ref, err := cluster.ParseJobRef(word)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(ref)
	}
	// Output:
	// 123
	// 123_4
	// not a job ID: "12x" (want 123 or 123_4)
}

// ExampleParseLimit reads time limits in the formats of Slurm.
func ExampleParseLimit() {
	for _, word := range []string{"90", "1-12", "2:30:00"} {
		limit, err := cluster.ParseLimit(word)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(cluster.FormatLimit(limit))
	}
	// Output:
	// 1:30:00
	// 1-12:00:00
	// 2:30:00
}

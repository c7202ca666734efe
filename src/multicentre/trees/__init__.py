"""Trees of all methods: tables of nodes, growth from histograms summed over sites, and the trees of a site."""

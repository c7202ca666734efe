"""Path of penalties of a generalised linear model, and their choice by cross-validation."""

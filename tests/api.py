"""The names inside symcomm that the tests use, by their home: where a module moves, only this file changes.

Where two homes have one name, the tests call one by another: ``events_run=run``. Nothing is imported before it is
asked for.
"""

from importlib import import_module

NAMES = {
    "symcomm.cli": "main",
    "symcomm.cli.serve": "page_build=build server",
    "symcomm.cli.shared": "shared_read_template=read_template",
    "symcomm.core": "accounting core_blocks=blocks core_drawing=drawing form identity model patience printing",
    "symcomm.core.accounting": "Accounting COLLECTIVES Convention accounting_CONVENTIONS=CONVENTIONS",
    "symcomm.core.blocks": "section_of",
    "symcomm.core.collected": "collect",
    "symcomm.core.collectives": "algorithms messages",
    "symcomm.core.collectives.algorithms": "ALGORITHMS KINDS algorithm runs_by share",
    "symcomm.core.collectives.bounds": "BOUNDS",
    "symcomm.core.collectives.cost": "Case Exchange plus times",
    "symcomm.core.collectives.messages": "messages_run=run",
    "symcomm.core.derivation": (
        "Condition Derivation Exhibit Numbers Reason Relations Step derivation_writing=writing exact "
    ),
    "symcomm.core.derivation.chosen": "chosen",
    "symcomm.core.derivation.tables": "Short in_one_unit to_the_right",
    "symcomm.core.drawing": "Box Drawing as_svg rails",
    "symcomm.core.dtypes": "Autocast FORMATS NumberFormat element_bytes formats number_format",
    "symcomm.core.errors": (
        "AccountingError DerivationError DocumentError FormulaError RenderError ShapeError Span StrategyError "
        "SymcommError TableError ValuesError errors_nearest=nearest "
    ),
    "symcomm.core.files": "one_line_end read_text write_file write_files",
    "symcomm.core.fitting": "MODELS TERMS compare fit measurements",
    "symcomm.core.form": (
        "Applied BinaryOnes Called Ceiling Elementwise Floor Form Largest Logarithm Num Power Product Ratio Related "
        "Root Smallest Sym Total Transposed form_evaluate=evaluate from_expr names negative num product rational "
        "substitute total unit_of value walk "
    ),
    "symcomm.core.garbage": "collected_rarely",
    "symcomm.core.graph": "ops",
    "symcomm.core.graph.autocast": "result_format",
    "symcomm.core.graph.axis_roles": "batch_axes expert_axes paired_axes sequence_axes vocabulary_axes",
    "symcomm.core.graph.build": "build",
    "symcomm.core.graph.contraction_orders": "COUNTS orders path sums_first trees",
    "symcomm.core.graph.experts": "ExpectedExperts",
    "symcomm.core.graph.functions": "FUNCTIONS",
    "symcomm.core.graph.gradient": "backward training",
    "symcomm.core.graph.gradient_formulas": "Names forward_form gradients_gradients=gradients why",
    "symcomm.core.graph.graph": "Graph Op Region",
    "symcomm.core.graph.ops": "AlongMax AlongMean AlongSum Chosen EPSILON MAP MAPS Rotate dy operations",
    "symcomm.core.graph.stepping": "again",
    "symcomm.core.graph.subscripts": "Einsum bound einsum_gradients=gradients read_subscripts",
    "symcomm.core.hardware.devices": "Device device devices known_devices known_networks networks",
    "symcomm.core.hardware.matrix": "LEGEND",
    "symcomm.core.hardware.paths": "Wiring wiring",
    "symcomm.core.hardware.topology": "Topology nvlinks rank read_topology",
    "symcomm.core.identity": "UndecidedError identical",
    "symcomm.core.irrational": "Irrational",
    "symcomm.core.keys": (
        "BlockKey COUNT TEXT TEXTS YES keyed keys_block=block keys_blocks=blocks keys_of one_of read_keys schema_of "
    ),
    "symcomm.core.model": "Model balance load_known model_load=load model_of_parts ratio",
    "symcomm.core.notation": "GREEK_NAMES Notation amount axis_role symbol",
    "symcomm.core.optimum": "optimum_search=search",
    "symcomm.core.optimum.cost": "cost_written=written derived",
    "symcomm.core.optimum.crossover": "crossover crossovers envelope",
    "symcomm.core.optimum.equality": "holding sure_root",
    "symcomm.core.optimum.minimum": "maximise minimise",
    "symcomm.core.optimum.powers": "course has_both_signs neat terms",
    "symcomm.core.optimum.question": "CountQuestion RefusedError",
    "symcomm.core.optimum.roots": "Crossing Domain points sign_at",
    "symcomm.core.optimum.search": "real",
    "symcomm.core.optimum.sensitivity": "break_even sensitivity",
    "symcomm.core.parallel.cheapest": "move",
    "symcomm.core.parallel.copies": "with_copied_heads",
    "symcomm.core.elimination": "PriceTable cheapest",
    "symcomm.core.parallel.halo": "with_halos",
    "symcomm.core.parallel.layouts": "placings",
    "symcomm.core.parallel.lowering": "OpStep",
    "symcomm.core.parallel.placement": "Collective Compute Layout PARTIAL Plan check_cuts plan "
                                        "summed_first update_ops with_slots",
    "symcomm.core.parallel.reference": "reference",
    "symcomm.core.parallel.strategy": "ALIASES Rule STRATEGIES parse_strategy resolve",
    "symcomm.core.printing": "amounts plain quantity_in short tex",
    "symcomm.core.printing.forms": "inline",
    "symcomm.core.program": "closed_forms program_program=program program_schedules=schedules",
    "symcomm.core.program.alive": "Fold Free Keep OpRun StorageEvent",
    "symcomm.core.program.autograd": "saved",
    "symcomm.core.program.closed_forms": "HOP OVERHEAD PAIR SECOND conditions cone held measures time",
    "symcomm.core.program.events": "OrderError Times simulate",
    "symcomm.core.program.instructions": "HOST Instruction Program Rewrite Send",
    "symcomm.core.program.loops": "Loop repeats",
    "symcomm.core.program.order_file": "parse_order read_order",
    "symcomm.core.program.orders": (
        "Action Schedule in_flight orders_Item=Item orders_passes=passes orders_written=written "
    ),
    "symcomm.core.program.pipeline": "check_divisible",
    "symcomm.core.program.program": "ONE_RANK _program program_program_program=program",
    "symcomm.core.program.rewrites": "in_order rewrites",
    "symcomm.core.program.schedules": (
        "_registry find schedules_register=register schedules_run=run schedules_schedules=schedules "
    ),
    "symcomm.core.program.step": "RankStep StepOptions",
    "symcomm.core.program.storage": "GRADIENT Line PASSING SAVED",
    "symcomm.core.program.uneven": "APART Makespan WHOLE makespan sums",
    "symcomm.core.quantities": "QUANTITIES kept",
    "symcomm.core.quantities.communication": "bucket_cap",
    "symcomm.core.quantities.communication.bucket_cap": "FIRST USUAL assignment gradient_sizes partition",
    "symcomm.core.quantities.communication.call": "calls",
    "symcomm.core.quantities.communication.wire": "wire",
    "symcomm.core.quantities.counting.flops": "is_matrix_product matrix_flops shared_pairs",
    "symcomm.core.quantities.counting.load": "ONE_DEVICE load_load=load",
    "symcomm.core.quantities.declared": "DeclaredQuantity Option",
    "symcomm.core.quantities.memory.allocated_memory": "allocated_memory_block=block",
    "symcomm.core.quantities.memory.snapshots": "StepRun snapshots step_of",
    "symcomm.core.quantities.recipes": "RECIPES recipe_of",
    "symcomm.core.quantities.time": "pipelines",
    "symcomm.core.quantities.time.judge": "judge",
    "symcomm.core.quantities.communication.links": "by_axis",
    "symcomm.core.quantities.witnesses": "witnesses_passes=passes",
    "symcomm.core.readers.architectures": "ARCHITECTURES class_names",
    "symcomm.core.readers.blueprint": "ReaderError",
    "symcomm.core.readers.config": "_misspelled read_config",
    "symcomm.core.readers.live": "module_tree",
    "symcomm.core.readers.module_text": "is_module_text parse_module",
    "symcomm.core.readers.modules": "LEAVES Module count",
    "symcomm.core.readers.unprinted": "_HEADS _TIED",
    "symcomm.core.records": "dataclass replace",
    "symcomm.core.sentences": "SENTENCES",
    "symcomm.core.report": "derivation",
    "symcomm.core.setting": "Setting StepWriter",
    "symcomm.core.text": "parsing",
    "symcomm.core.text.context": "Context Scope",
    "symcomm.core.text.finder": "layer_tables read_tables",
    "symcomm.core.text.declarations": "read_declarations",
    "symcomm.core.text.equations": "Target read_equation",
    "symcomm.core.text.formula": (
        "LayerRow _atoms _distinct _items _with_ranges parse_answer parse_layer parse_size "
    ),
    "symcomm.core.text.grammars": "FORMULA Grammar KEPT MODULE",
    "symcomm.core.text.syntax": "Branch start_of stop_of",
    "symcomm.core.text.table": "CELL_LIMIT Cell ROW_LIMIT TEXT_LIMIT Table as_layer_table",
    "symcomm.core.text.tree": (
        "Exponentiation Family FunctionCall Hadamard Identifier Multiplication Node Number Quotient Radical Sum "
        "Transpose bare children size_form tree_walk=walk "
    ),
    "symcomm.core.timeline": "timeline",
    "symcomm.core.units": "BYTE ELEMENT FLOP ONE Quantity Unit",
    "symcomm.core.worksheets": "Worksheet built_in parse_worksheet read_worksheet",
    "symcomm.core.worksheets.runs": "RUNS",
    "symcomm.documents.plots.drawing": "Sketch",
    "symcomm.documents.plots.figure": "figure figure_words=words figure_written=written said",
    "symcomm.documents.plots.optimum": "break_even_plot crossover_plot optimum_plot sensitivity_plot",
    "symcomm.documents.plots.rings": "ORDERS _run causal_balance ring_steps",
    "symcomm.documents.plots.roofline": "roofline_plot",
    "symcomm.documents.plots.schedule": "schedule_plot schedule_says=says timetable",
    "symcomm.documents.plots.timeline": "timeline_plot",
    "symcomm.documents.plots.trace": "trace_plot trace_says=says",
    "symcomm.documents.render.telling": "numbers_in telling",
    "symcomm.documents.render": "contents pdf prose render safe_name source",
    "symcomm.documents.render.page": "MatrixCode matrix_code",
    "symcomm.documents.render.document": "Answer Block Document Given Heading LayerTable Picture Prose",
    "symcomm.documents.render.environment": "TEMPLATES",
    "symcomm.documents.render.pdf": "latex_run typst_pdf",
    "symcomm.documents.render.prose": "InlinePiece pandoc with_numbers without_numbers",
    "symcomm.documents.render.questions": "Questions questions",
    "symcomm.documents.render.view": "page",
    "symcomm.documents.render.words": "Catalogue Words words_words=words",
    "symcomm.documents.render.writer": "Kind PageWriter table_view",
    "symcomm.exams": "decision kept_answers",
    "symcomm.exams.candidates": "Candidates",
    "symcomm.exams.choices": "option_text",
    "symcomm.exams.common": "with_mistakes",
    "symcomm.exams.decision": "TimeUpError deadline decide",
    "symcomm.exams.exports": (
        "EXPORTERS Exporter exports_drawing=drawing exports_register=register exports_writing=writing "
    ),
    "symcomm.exams.exports.drawing": "draw_items exam_of items_of",
    "symcomm.exams.exports.item": (
        "PictureFile QuestionOption QuestionPart Recognised item_Item=Item number_text shown_in "
    ),
    "symcomm.exams.exports.markup": "fill_export=fill packed zipped",
    "symcomm.exams.exports.moodle": "FRACTIONS",
    "symcomm.exams.grading": "grade=grade_papers",
    "symcomm.exams.key": "key_of",
    "symcomm.exams.mistakes": "MISTAKES SaidChange",
    "symcomm.core.real_numbers": "FormNumber FormNumbers are_apart number_of",
    "symcomm.exams.pages": "paper_page solution_page",
    "symcomm.exams.papers": "Exam significant_digits",
    "symcomm.exams.problems": "keys problem problems_pieces=pieces schema",
    "symcomm.exams.problems.answer_keys": "AnswerKeys",
    "symcomm.exams.problems.deriving": "derive no_model",
    "symcomm.exams.problems.drawing_values": "read_draws",
    "symcomm.exams.problems.exam_keys": "ExamKeys",
    "symcomm.exams.problems.figures": "FIGURES Figure",
    "symcomm.exams.problems.pieces": "pieces_pieces=pieces",
    "symcomm.exams.problems.problem": (
        "Ask FRONT ModelBlock TABLE_KEYS Template parse_problem parse_template "
        "problem_read_template=read_template read_problem "
    ),
    "symcomm.exams.problems.randomness": "Stream",
    "symcomm.exams.problems.references": "NamedValue",
    "symcomm.exams.problems.schema": "problem_schema",
    "symcomm.exams.problems.solve": "answer_of following load_model solve",
    "symcomm.exams.problems.verified": "cache_path run_key",
    "symcomm.core.answers.measures": "measures_measure=measure",
    "symcomm.exams.roster": "Student csv_text numbered read_roster",
    "symcomm.exams.rubric": "mark_of share_of",
    "symcomm.exams.self_test": "self_test",
    "symcomm.exams.sheets": "Sheet papers_of read_sheets",
    "symcomm.exams.summary": (
        "Decision feedback grades_csv html look_at look_csv read_decisions summary summary_markdown=markdown "
    ),
    "symcomm.exams.verdict": "Verdict",
    "symcomm.exams.writing": "Order key_record keys_csv keys_json make",
    "symcomm.searching": "options searching_evaluate=evaluate space",
    "symcomm.searching.evaluate": "Part Points arrays evaluate_nearest=nearest merged pareto rounded undominated",
    "symcomm.searching.ranges": "divisors whole_numbers",
    "symcomm.searching.result": "SearchResult",
    "symcomm.searching.run": "run_search=search",
    "symcomm.searching.space": "Grid",
    "symcomm.searching.structure": "Core Draft Limit Objective SearchQuestion structure",
    "symcomm.searching.template": "template_pieces=pieces",
    "symcomm.teaching.differentiation.costs": "peak",
    "symcomm.teaching.differentiation.exercises": "exercise",
    "symcomm.teaching.differentiation.mistakes": "TRACE_MISTAKES",
    "symcomm.teaching.differentiation.sweeps": "forward hessian_product jacobian reverse",
    "symcomm.teaching.differentiation.tables": "adjoints primal tangents",
    "symcomm.teaching.sums": "added compensated pairwise promoted summed",
    "symcomm.verify": "expected launch",
    "symcomm.verify.conventions": "CallEntry RunContext conventions_CONVENTIONS=CONVENTIONS",
    "symcomm.verify.emitters": "EMITTERS",
    "symcomm.verify.expected": (
        "RunCase batch_first context_of derived_flops derived_parameters derived_peak derived_saved "
        "expected_calls make_case needed_memory with_products without_dropout "
    ),
    "symcomm.verify.grid": "FOUR GridCell TWO grid grid_markdown=markdown",
    "symcomm.verify.launch": "Launcher VerificationError",
    "symcomm.verify.lines": "identifier",
    "symcomm.verify.methods": "METHODS method",
    "symcomm.verify.module": "torch_module",
    "symcomm.verify.practice": "EXERCISES practice write_practice",
    "symcomm.verify.sizes": "small_sizes",
    "symcomm.verify.by_op": "RowTimes TimedRow by_op by_op_text=text",
    "symcomm.verify.measure": "MachineTable MeasuredSize device_yaml measured_text=text",
    "symcomm.verify.verify": "ComparedRow Verification _notes prepare verify",
}
HOMES = {
    one.partition("=")[0]: (module, one.rpartition("=")[2]) for module, names in NAMES.items() for one in names.split()
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(name)
    module, own = HOMES[name]
    found = getattr(import_module(module), own, None)
    return import_module(f"{module}.{own}") if found is None else found
